// Files of other formats, under any name, as texts and as tokens: named, with the command that makes a text of them.
#include "data/samples/known_files.h"

#include "data/corpus/byte_source.h"
#include "data/samples/token_stream.h"
#include "tests/data/compressed.h"
#include "tests/data/scratch.h"

namespace megalith {
namespace {

using test::gzipped;
using test::Scratch;
using test::zstd_compressed;
using namespace std::string_literals;

void open_text(const Scratch& scratch, const std::string& name, const std::string& bytes) {
  open_bytes(find_texts({scratch.write(name, bytes)}, false)[0]);
}

const std::string filler(600, 'x');

TEST(KnownFiles, AreNamedAsTextsWithTheCommandThatReadsThem) {
  const Scratch scratch;
  EXPECT_ERROR(open_text(scratch, "a.txt", "PAR1" + filler), "a.txt is a Parquet file", "pandas.read_parquet('",
               "table.to_json('/dev/stdout'", "| megalith prepare --text - --field text");
  EXPECT_ERROR(open_text(scratch, "a", "\xff\xff\xff\xff" + filler), "an Arrow stream", "ipc.open_stream('");
  EXPECT_ERROR(open_text(scratch, "it's", "ARROW1" + filler), "open_file('", "it\\'s')");
  EXPECT_ERROR(open_text(scratch, "a.txt", "BZh9" + filler), "packed with bzip2", "bzip2 -dc '", "| megalith prepare");
  EXPECT_ERROR(open_text(scratch, "it's.txt", "BZh9" + filler), "it'\\''s.txt'");
  EXPECT_ERROR(open_text(scratch, "a.jsonl", "PK\x03\x04" + filler), "packed with zip", "unzip -p '", "--field text");
  EXPECT_ERROR(open_text(scratch, "a.txt", "PK\x03\x04" + filler.substr(0, 26) + "[Content_Types].xml"),
               "an Office file", "pandoc -t plain");
  EXPECT_ERROR(open_text(scratch, "a.txt",
                         "\xff\xfe"
                         "a\0b\0"s),
               "is UTF-16", "iconv -f UTF-16 -t UTF-8 '");
  EXPECT_ERROR(open_text(scratch, "a.txt", "\xfe\xff\0a\0b"s), "is UTF-16");
  EXPECT_ERROR(open_text(scratch, "a.txt", "\xff\xfe\0\0a\0\0\0"s), "is UTF-32");
  EXPECT_ERROR(open_text(scratch, "a.txt", "a\0 \0b\0\n\0c\0\x53\x30"s), "is UTF-16", "UTF-16LE");
  EXPECT_ERROR(open_text(scratch, "a.txt", "\0a\0 \0b\0\n\0c"s), "is UTF-16", "UTF-16BE");
  EXPECT_ERROR(open_text(scratch, "a.txt", "\x93NUMPY" + filler), "a numpy array", "name it as data.train");
  EXPECT_ERROR(open_text(scratch, "a.txt", "%PDF-1.4" + filler), "a PDF file", "pdftotext '");
  EXPECT_ERROR(open_text(scratch, "a.txt", "SQLite format 3\0"s + filler), "an SQLite database",
               "write its texts into");
  // Inside of a compression that is read, and twice compressed.
  const std::string tar = std::string(257, 'x') + "ustar" + filler;
  EXPECT_ERROR(open_text(scratch, "a.tar.gz", gzipped(tar)), "holds what is compressed or packed with tar",
               "this reads it: tar -xOf '");
  EXPECT_ERROR(open_text(scratch, "a.zst", zstd_compressed("\xff\xfe" + filler)), "zstd -dc '",
               "> FILE; iconv -f UTF-16");
  EXPECT_ERROR(open_text(scratch, "a.gz", gzipped(gzipped(filler))), "holds what is compressed or packed with gzip");
  for (const std::string& text : {"BZ is no magic"s, "PK"s, "GIF7"s, "\xef\xbb\xbftext"s, "a\0b"s, "ORAC"s})
    EXPECT_NO_THROW(open_text(scratch, "a.txt", text)) << text;
}

TEST(KnownFiles, AreNamedAsTokensUnderAnyName) {
  const Scratch scratch;
  const auto open = [&](const std::string& bytes) { TokenStream::open(scratch.write("a.bin", bytes)); };
  EXPECT_ERROR(open(gzipped(filler)), "a.bin is compressed or packed with gzip", "gzip -dc '", "> tokens.bin");
  EXPECT_ERROR(open(zstd_compressed(filler)), "packed with zstd", "zstd -dc '");
  EXPECT_ERROR(open("PK\x03\x04" + filler), "packed with zip", "unzip -p");
  EXPECT_ERROR(open("PAR1" + filler), "a Parquet file, not tokens", "read_parquet", "--field text",
               "name the train.bin");
  EXPECT_ERROR(open("\xff\xfe"
                    "a\0b\0"s),
               "is UTF-16, not tokens", "iconv -f UTF-16");
  EXPECT_ERROR(open("\x89HDF\r\n\x1a\n" + filler), "an HDF5 file, not tokens", "numpy.save");
  EXPECT_ERROR(open("\x80\x04\x95" + filler), "a Python pickle");
}

}  // namespace
}  // namespace megalith
