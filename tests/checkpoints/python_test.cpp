// Strangers read what we write: the snippet of FORMAT.md with h5py, `transformers` with an export; skipped
// where there is no Python that has them (tests/python.h).
#include <cstring>

#include "tests/checkpoints/gpt2.h"
#include "tests/checkpoints/helpers.h"
#include "tests/python.h"

namespace megalith {
namespace {

using namespace test;

TEST(Python, the_snippet_of_the_format_page_reads_every_tensor) {
  const std::string python = python_with("h5py, numpy");
  if (python.empty()) GTEST_SKIP() << "MEGALITH_PYTHON does not name a Python with h5py";
  const std::string page = read_file(MEGALITH_SOURCE_DIR "/checkpoints/FORMAT.md"), open = "```python\n";
  const size_t begin = page.find(open) + open.size();
  const TemporaryFolder folder;
  spill(folder / "snippet.py", page.substr(begin, page.find("```", begin) - begin));
  const std::string checkpoint = write_checkpoint(folder.path(), 3, 2, 3);
  const auto run = [&](const std::string& tensor) {
    return std::system(fmt::format("'{}' '{}' '{}' '{}' '{}' 2>'{}'", python, folder / "snippet.py", checkpoint, tensor,
                                   folder / "out", folder / "err")
                           .c_str());
  };
  for (const TestTensor& t : test_tensors()) {
    ASSERT_EQ(run(t.name), 0) << read_file(folder / "err");
    const std::vector<float> expected = values_of(t, whole_tensor(t.name, t.shape));
    const std::string bytes = read_file(folder / "out");
    ASSERT_EQ(bytes.size(), expected.size() * 4) << t.name;
    EXPECT_EQ(std::memcmp(bytes.data(), expected.data(), bytes.size()), 0) << t.name;
  }
  // A flipped bit is found there as well.
  const CheckpointReader reader(checkpoint);
  const FileRecord& record = reader.manifest().files[0];
  std::string bytes = read_file(checkpoint + "/" + record.name);
  bytes[static_cast<size_t>(record.datasets[0].offset)]++;
  spill(checkpoint + "/" + record.name, bytes);
  EXPECT_NE(run(record.datasets[0].shard.name), 0);
  EXPECT_NE(read_file(folder / "err").find("is damaged"), std::string::npos);
}

TEST(Python, transformers_computes_the_reference_logits_from_an_export) {
  const std::string python = python_with("transformers, torch, h5py");
  if (python.empty()) GTEST_SKIP() << "MEGALITH_PYTHON does not name a Python with transformers";
  if (!fs::exists(tiny)) GTEST_SKIP() << tiny << " is absent";
  const TemporaryFolder folder;
  HuggingFaceReader source = open_gpt2(tiny);
  const ModelConfig model = read_hugging_face_shape(tiny);
  export_hugging_face(source, model, gpt2_parameters(model), folder / "export");
  const std::string command =
      fmt::format("'{}' '{}' '{}' '{}' '{}'", python, MEGALITH_SOURCE_DIR "/tests/checkpoints/export_loads.py",
                  folder / "export", tiny + "/tokens.bin", tiny + "/reference.h5");
  EXPECT_EQ(std::system(command.c_str()), 0);
}

}  // namespace
}  // namespace megalith
