// Megatron-LM's own IndexedDataset, of the package megatron-core, reads what we write, and we what it writes.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "data/samples/indexed_dataset_writer.h"
#include "data/samples/token_stream.h"
#include "tests/data/scratch.h"
#include "tests/python.h"

namespace megalith {
namespace {

using test::Scratch;

// argv: prefix of a dataset of ours, a file for the answer, a prefix for a copy.
const std::string megatron_copies =
    "import json, sys\n"
    "import numpy, torch\n"
    "from megatron.core.datasets.indexed_dataset import IndexedDataset, IndexedDatasetBuilder\n"
    "ours, answer, copy = sys.argv[1:]\n"
    "found = IndexedDataset(ours)\n"
    "told = {'dtype': numpy.dtype(found.index.dtype).name, 'sequences': [found[i].tolist() for i in "
    "range(len(found))],\n"
    "        'documents': found.document_indices.tolist(), 'middle': found.get(0, offset=1, length=2).tolist()}\n"
    "json.dump(told, open(answer, 'w'))\n"
    "builder = IndexedDatasetBuilder(copy + '.bin', dtype=found.index.dtype)\n"
    "bounds = told['documents']\n"
    "for begin, end in zip(bounds, bounds[1:]):\n"
    "    sequences = told['sequences'][begin:end]\n"
    "    builder.add_document(torch.tensor(sum(sequences, [])), [len(s) for s in sequences])\n"
    "builder.finalize(copy + '.idx')\n";

TEST(IndexedDataset, MegatronReadsOursAndWritesTheSameBytes) {
  const std::string python = python_with("megatron.core.datasets.indexed_dataset");
  if (python.empty()) GTEST_SKIP() << "MEGALITH_PYTHON names no Python with megatron-core and torch";
  const Scratch scratch;
  scratch.write("read_and_copy.py", megatron_copies);
  struct Case {
    const char* name;
    const char* dtype;
    int64_t vocab;
    int32_t largest;
  };
  for (const Case& c : {Case{"narrow", "uint16", 65'499, 65'498}, {"wide", "int32", 300'000, 299'999}}) {
    SCOPED_TRACE(c.name);
    // With up to 4 tokens a sequence, one document has several sequences, one has one, and one is empty.
    const std::vector<std::vector<int32_t>> documents = {{1, 2, c.largest, 4, 5, 6, 7}, {c.largest}, {}, {0, 8, 9, 10}};
    const std::string ours = scratch.path(c.name), copy = ours + "-copy", answer = ours + ".json";
    IndexedDatasetWriter writer(ours, c.vocab, 4);
    for (const auto& document : documents) {
      writer.add(document);
      writer.end_document();
    }
    writer.finish();
    ASSERT_EQ(std::system(fmt::format("'{}' '{}' '{}' '{}' '{}' 2>'{}'", python, scratch.path("read_and_copy.py"), ours,
                                      answer, copy, scratch.path("err"))
                              .c_str()),
              0)
        << read_file(scratch.path("err"));
    const nlohmann::json told = nlohmann::json::parse(read_file(answer));
    EXPECT_EQ(told.at("dtype"), c.dtype);
    EXPECT_EQ(told.at("middle"), nlohmann::json({2, c.largest}));
    const nlohmann::json bounds = told.at("documents");
    ASSERT_EQ(bounds.size(), documents.size() + 1);
    for (size_t d = 0; d < documents.size(); d++) {
      std::vector<int32_t> found;
      for (size_t s = bounds[d]; s < bounds[d + 1]; s++) {
        const auto sequence = told.at("sequences").at(s).get<std::vector<int32_t>>();
        EXPECT_LE(sequence.size(), 4u);
        found.insert(found.end(), sequence.begin(), sequence.end());
      }
      EXPECT_EQ(found, documents[d]) << "document " << d;
    }
    for (const char* end : {".bin", ".idx"}) EXPECT_EQ(read_file(copy + end), read_file(ours + end)) << end;
    const TokenStream stream = TokenStream::open(copy + ".bin");
    EXPECT_EQ(stream.documents(), static_cast<int64_t>(documents.size()));
    EXPECT_EQ(stream.size(), 12);
  }
}

}  // namespace
}  // namespace megalith
