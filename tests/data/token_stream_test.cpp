#include "data/samples/token_stream.h"

#include <sys/stat.h>

#include <fmt/format.h>

#include <cstring>
#include <limits>
#include <random>
#include <thread>

#include "data/samples/indexed_dataset_writer.h"
#include "tests/data/scratch.h"

namespace megalith {
namespace {

using test::Scratch;

template <class T>
std::string bytes_of(const std::vector<T>& values) {
  std::string bytes(values.size() * sizeof(T), '\0');
  std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

std::vector<int32_t> all_of(const TokenStream& stream) {
  std::vector<int32_t> tokens(static_cast<size_t>(stream.size()));
  stream.read(0, tokens);
  return tokens;
}

std::string llmc_header(int32_t magic, int32_t version, int32_t tokens) {
  std::vector<int32_t> header(256);
  header[0] = magic;
  header[1] = version;
  header[2] = tokens;
  return bytes_of(header);
}

TEST(TokenStream, Raw) {
  Scratch scratch;
  const auto stream = TokenStream::open(scratch.write("a.bin", bytes_of(std::vector<uint16_t>{1, 65535, 0, 7})));
  EXPECT_EQ(all_of(stream), (std::vector<int32_t>{1, 65535, 0, 7}));
  EXPECT_EQ(stream.max_possible_token(), 65535);
  EXPECT_EQ(stream.max_token(0, 4), 65535);
  EXPECT_EQ(stream.max_token(2, 4), 7);
  std::vector<int32_t> two(2);
  stream.read(2, two);
  EXPECT_EQ(two, (std::vector<int32_t>{0, 7}));
  EXPECT_ERROR(stream.read(3, two), "[3, 5)", "which has 4");
  EXPECT_ERROR(stream.read(-1, two), "[-1, 1)");
  EXPECT_ERROR(stream.max_token(2, 2), "[2, 2)");
}

// Llama 3's, whose ids go beyond 65,535; what no id can be is refused.
TEST(TokenStream, LlmCWithWideIds) {
  Scratch scratch;
  const auto stream = TokenStream::open(
      scratch.write("a.bin", llmc_header(20240801, 7, 3) + bytes_of(std::vector<uint32_t>{5, 128255, 70000})));
  EXPECT_EQ(all_of(stream), (std::vector<int32_t>{5, 128255, 70000}));
  EXPECT_EQ(stream.max_possible_token(), 2147483647);
  EXPECT_EQ(stream.max_token(0, 3), 128255);
  EXPECT_FALSE(stream.is_raw());
  const auto wrong = TokenStream::open(
      scratch.write("b.bin", llmc_header(20240801, 7, 1) + bytes_of(std::vector<uint32_t>{4294967295u})));
  EXPECT_ERROR(wrong.max_token(0, 1), "4294967295", "2147483647");
}

// A text that is named in place of its tokens, of an even or an odd size, in any language; but not tokens.
TEST(TokenStream, ATextIsNoTokens) {
  Scratch scratch;
  for (const size_t more : {0u, 1u}) {
    std::string ascii, cyrillic;
    while (ascii.size() < 200'000) ascii += "It was a bright cold day in April.\r\n\t";
    while (cyrillic.size() < 150'000) cyrillic += "\xd0\xbc\xd0\xb8\xd1\x80, \xe4\xb8\x96\xe7\x95\x8c ";
    for (std::string text : {ascii, cyrillic, ascii.substr(0, 100)}) {
      text.resize(text.size() / 2 * 2);
      if (more) text.insert(0, "a");
      EXPECT_ERROR(TokenStream::open(scratch.write("book.txt", text)), "book.txt is a text", "prepare --text");
    }
  }
  std::mt19937 random(1);
  for (const int vocab : {256, 4096, 50257, 65536}) {
    std::vector<uint16_t> tokens;
    for (int i = 0; i < 1000; i++) tokens.push_back(static_cast<uint16_t>(random() % static_cast<unsigned>(vocab)));
    EXPECT_NO_THROW(TokenStream::open(scratch.write("a.bin", bytes_of(tokens)))) << vocab;
  }
  EXPECT_NO_THROW(TokenStream::open(scratch.write("a.bin", "few bytes!")));
}

std::string npy(const std::string& type, const std::string& shape, const std::string& array, int version = 1,
                const std::string& by_columns = "False") {
  std::string header = fmt::format("{{'descr': '{}', 'fortran_order': {}, 'shape': {}, }}", type, by_columns, shape);
  header.resize(118, ' ');
  header.back() = '\n';
  return "\x93NUMPY" + std::string{static_cast<char>(version), 0, 118, 0} + std::string(version == 1 ? 0 : 2, '\0') +
         header + array;
}

TEST(TokenStream, ArraysOfNumpyAreReadByTheirHeader) {
  const Scratch scratch;
  const auto open = [&](const std::string& bytes) { return TokenStream::open(scratch.write("a.bin", bytes)); };
  const std::vector<int32_t> want = {5, 0, 127};
  const auto same = [&]<class T>(const char* type, T) {
    for (const int version : {1, 2}) {
      const auto stream = open(npy(type, "(3,)", bytes_of(std::vector<T>{5, 0, 127}), version));
      EXPECT_EQ(all_of(stream), want) << type;
      EXPECT_EQ(stream.max_token(0, 3), 127) << type;
      EXPECT_FALSE(stream.is_raw());
    }
  };
  same("|u1", uint8_t{});
  same("<u2", uint16_t{});
  same("<u4", uint32_t{});
  same("<u8", uint64_t{});
  same("|i1", int8_t{});
  same("<i2", int16_t{});
  same("<i4", int32_t{});
  same("<i8", int64_t{});
  const std::string six = bytes_of(std::vector<uint16_t>{1, 2, 3, 4, 5, 6});
  EXPECT_EQ(all_of(open(npy("<u2", "(2, 3)", six))), (std::vector<int32_t>{1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(all_of(open(npy("<u2", "(6,)", six, 1, "True"))).size(), 6u);
  EXPECT_ERROR(open(npy("<u2", "(2, 3)", six, 1, "True")), "fortran_order", "ascontiguousarray");
  EXPECT_ERROR(open(npy("<f4", "(3,)", six)), "an array of <f4", "astype('<u4')");
  EXPECT_ERROR(open(npy(">u2", "(6,)", six)), "an array of >u2");
  EXPECT_ERROR(open(npy("<u2", "(7,)", six)), "a header for 7 tokens, 142 bytes", "has 140");
  EXPECT_ERROR(open(npy("<u2", "(0,)", "")), "without elements");
  EXPECT_ERROR(open(npy("<u2", "(x,)", six)), "damaged");
  EXPECT_ERROR(open(npy("<u2", "(6,)", six).substr(0, 60)), "60 bytes; its header is 128");
  EXPECT_ERROR(open(npy("<u2", "(6,)", six, 4)), "version 4");
  const auto wide = open(npy("<i8", "(2,)", bytes_of(std::vector<int64_t>{5, int64_t{1} << 40})));
  EXPECT_ERROR(wide.max_token(0, 2), "1099511627776", "ids go up to 2147483647");
  const auto negative = open(npy("<i8", "(2,)", bytes_of(std::vector<int64_t>{5, -100})));
  EXPECT_ERROR(negative.max_token(0, 2), "-100", "never negative");
}

// Ids of any vocabulary, in each width.
TEST(TokenStream, RawIdsOfAnotherWidthAreRefusedWithIt) {
  const Scratch scratch;
  std::mt19937 random(1);
  const auto open = [&]<class T>(T, int64_t vocab) {
    std::vector<T> ids;
    for (int i = 0; i < 1000; i++) ids.push_back(static_cast<T>(random() % static_cast<unsigned>(vocab)));
    TokenStream::open(scratch.write("a.bin", bytes_of(ids)));
  };
  for (const int64_t vocab : {2, 65, 257, 4096, 50257, 65536, 128256, 262144}) {
    EXPECT_ERROR(open(uint32_t{}, vocab), "ids of 4 bytes", "numpy.fromfile('", "'<u4'", "name that file");
    EXPECT_ERROR(open(int64_t{}, vocab), "ids of 8 bytes", "'<u8'");
  }
  EXPECT_ERROR(open(uint8_t{}, 65), "ids of 1 byte", "'u1'");
  for (const int64_t vocab : {1, 2, 10, 16, 65, 257, 300, 512, 1000, 50257, 65536})
    EXPECT_NO_THROW(open(uint16_t{}, vocab)) << vocab;
}

TEST(TokenStream, LlmC) {
  Scratch scratch;
  const std::string tokens = bytes_of(std::vector<uint16_t>{5, 6, 50256});
  EXPECT_EQ(all_of(TokenStream::open(scratch.write("a.bin", llmc_header(20240520, 1, 3) + tokens))),
            (std::vector<int32_t>{5, 6, 50256}));
  EXPECT_ERROR(TokenStream::open(scratch.write("b.bin", llmc_header(20240520, 1, 4) + tokens)), "a header for 4 tokens",
               "1032 bytes", "has 1030");
  EXPECT_ERROR(TokenStream::open(scratch.write("c.bin", llmc_header(20240520, 2, 3) + tokens)), "version 2");
  EXPECT_ERROR(TokenStream::open(scratch.write("d.bin", llmc_header(20240801, 1, 3) + tokens)), "magic 20240801",
               "version 1");
  EXPECT_ERROR(TokenStream::open(scratch.write("d.bin", llmc_header(20240801, 7, 3) + tokens)), "a header for 3 tokens",
               "1036 bytes", "has 1030");
  EXPECT_ERROR(TokenStream::open(scratch.write("e.bin", llmc_header(20240520, 1, 0).substr(0, 100))), "100 bytes",
               "1024");
}

TEST(TokenStream, RefusesWhatIsNoTokenFile) {
  Scratch scratch;
  EXPECT_ERROR(TokenStream::open(scratch.path("none.bin")), "none.bin", "No such file");
  EXPECT_ERROR(TokenStream::open(scratch.write("empty.bin", "")), "empty.bin", "0 bytes");
  EXPECT_ERROR(TokenStream::open(scratch.write("odd.bin", "abc")), "3 bytes", "odd");
  EXPECT_ERROR(TokenStream::open(scratch.path(".")), "not a plain file");
}

// The bytes of both files, spelled out.
// A file that shrinks under a run, as a copy over it makes it do, is an error of the step that reads it: not the end of
// the process by SIGBUS.
TEST(TokenStream, ThatShrinksUnderARun) {
  Scratch scratch;
  const std::string tokens = bytes_of(std::vector<uint16_t>(100000, 7));
  for (const std::string& header : {std::string(), llmc_header(20240520, 1, 100000)}) {
    const std::string path = scratch.write("a.bin", header + tokens);
    const auto stream = TokenStream::open(path);
    std::vector<int32_t> last(1000);
    stream.read(99000, last);
    std::filesystem::resize_file(path, 10000);
    for (int twice = 0; twice < 2; twice++) {
      EXPECT_ERROR(stream.read(99000, last), path.c_str(), "10000 now");
      EXPECT_ERROR(stream.max_token(0, 100000), path.c_str(), "10000 now");
    }
    EXPECT_THROW(stream.read(99000, last), CorruptFile);
    stream.read(0, last);  // what is there can be read still
    EXPECT_EQ(last.back(), 7);
    std::thread([&] { EXPECT_THROW(stream.read(99000, last), CorruptFile); }).join();
  }
}

TEST(TokenStream, OfNoPlainFile) {
  Scratch scratch;
  const std::string path = scratch.path("a.bin");
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);  // whoever opens it waits for a writer
  EXPECT_ERROR(TokenStream::open(path), path.c_str(), "is not a plain file");
  EXPECT_ERROR(TokenStream::open("/dev/zero"), "/dev/zero is not a plain file");
}

TEST(IndexedDataset, FormatToTheByte) {
  Scratch scratch;
  IndexedDatasetWriter writer(scratch.path("a"), 300, 2);
  writer.add(std::vector<int32_t>{1, 2});
  writer.add(std::vector<int32_t>{299});
  writer.end_document();
  writer.add(std::vector<int32_t>{4});
  writer.end_document();
  writer.finish();
  EXPECT_EQ(read_file(scratch.path("a.bin")), bytes_of(std::vector<uint16_t>{1, 2, 299, 4}));
  const std::string header = std::string("MMIDIDX\0\0", 9) + bytes_of(std::vector<uint64_t>{1}) + "\x08" +
                             bytes_of(std::vector<uint64_t>{3, 3});
  EXPECT_EQ(read_file(scratch.path("a.idx")), header + bytes_of(std::vector<int32_t>{2, 1, 1}) +
                                                  bytes_of(std::vector<int64_t>{0, 4, 6}) +
                                                  bytes_of(std::vector<int64_t>{0, 2, 3}));
  EXPECT_EQ(all_of(TokenStream::open(scratch.path("a.bin"))), (std::vector<int32_t>{1, 2, 299, 4}));
}

TEST(IndexedDataset, AnIndexIsNoTokenFile) {
  Scratch scratch;
  IndexedDatasetWriter writer(scratch.path("a"), 300);
  writer.add(std::vector<int32_t>{1, 2, 3, 4});
  writer.end_document();
  writer.finish();
  ASSERT_EQ(read_file(scratch.path("a.idx")).size() % 2, 0u) << "it could be uint16 tokens";
  EXPECT_ERROR(TokenStream::open(scratch.path("a.idx")), "a.idx is the index", "name the file itself", "a.bin");
}

TEST(IndexedDataset, WideTokensFromAVocabularyOf65500On) {
  Scratch scratch;
  IndexedDatasetWriter wide(scratch.path("wide"), 65500), narrow(scratch.path("narrow"), 65499);
  for (IndexedDatasetWriter* writer : {&wide, &narrow}) {
    writer->add(std::vector<int32_t>{65498});
    writer->end_document();
    writer->finish();
  }
  EXPECT_EQ(read_file(scratch.path("wide.bin")).size(), 4u);
  EXPECT_EQ(read_file(scratch.path("wide.idx"))[17], 4);
  EXPECT_EQ(read_file(scratch.path("narrow.bin")).size(), 2u);
  EXPECT_EQ(read_file(scratch.path("narrow.idx"))[17], 8);
  const auto stream = TokenStream::open(scratch.path("wide.bin"));
  EXPECT_EQ(all_of(stream), std::vector<int32_t>{65498});
  EXPECT_EQ(stream.max_possible_token(), std::numeric_limits<int32_t>::max());

  scratch.write("wide.bin", bytes_of(std::vector<int32_t>{-3}));
  EXPECT_ERROR(TokenStream::open(scratch.path("wide.bin")).max_token(0, 1), "token -3", "never negative");
}

TEST(IndexedDataset, RefusesDamage) {
  Scratch scratch;
  IndexedDatasetWriter writer(scratch.path("a"), 300);
  writer.add(std::vector<int32_t>{1, 2, 3});
  writer.end_document();
  writer.finish();
  const std::string bin = read_file(scratch.path("a.bin")), idx = read_file(scratch.path("a.idx"));
  const auto open = [&](const std::string& new_bin, const std::string& new_idx) {
    scratch.write("a.bin", new_bin);
    scratch.write("a.idx", new_idx);
    TokenStream::open(scratch.path("a.bin"));
  };
  const auto with_byte = [&](size_t at, char value) {
    std::string damaged = idx;
    damaged[at] = value;
    return damaged;
  };
  open(bin, idx);
  EXPECT_ERROR(open(bin.substr(0, 4), idx), "a.bin has 4 bytes", "3 tokens of 2 bytes, 6 in all");
  EXPECT_ERROR(open(bin + "xy", idx), "a.bin has 8 bytes");
  EXPECT_ERROR(open("", idx), "a.bin", "0 bytes");
  EXPECT_ERROR(open(bin, idx.substr(0, 20)), "20 bytes", "34");
  EXPECT_ERROR(open(bin, with_byte(0, 'X')), "MMIDIDX");
  EXPECT_ERROR(open(bin, with_byte(9, 2)), "version 2");
  EXPECT_ERROR(open(bin, with_byte(17, 5)), "element type 5");
  EXPECT_ERROR(open(bin, with_byte(25, 0x7f)), "do not fit");
  EXPECT_ERROR(open(bin, idx.substr(0, idx.size() - 1)), "1 sequences", "2 document bounds");
  EXPECT_ERROR(open(bin, with_byte(38, 2)), "sequence 0", "byte 2, expected 0");
  EXPECT_ERROR(open(bin, with_byte(idx.size() - 8, 2)), "document bound 1 is 2");
  EXPECT_ERROR(open(bin, with_byte(idx.size() - 8, 0)), "end at 0", "1 sequences");
  open(bin, idx);
  std::filesystem::remove(scratch.path("a.bin"));
  EXPECT_ERROR(TokenStream::open(scratch.path("a.bin")), "a.bin", "No such file");
}

}  // namespace
}  // namespace megalith
