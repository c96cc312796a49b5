#include "data/samples/known_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "kernels/system/check.h"

namespace megalith {

namespace {

using Holds = KnownFile::Holds;
using namespace std::string_view_literals;

struct Magic {
  size_t at;
  std::string_view bytes;
  const char* name;
  const char* unpack;
  Holds holds;
};

// The first match counts. Tables are read by a Python statement, the other formats by a command.
constexpr std::array magics = {
    Magic{0, "\x1f\x8b\x08"sv, "gzip", "gzip -dc FILE", Holds::another},
    Magic{0, "\x28\xb5\x2f\xfd"sv, "zstd", "zstd -dc FILE", Holds::another},
    Magic{0, "\xfd\x37zXZ\0"sv, "xz", "xz -dc FILE", Holds::another},
    Magic{0, "BZh"sv, "bzip2", "bzip2 -dc FILE", Holds::another},
    Magic{0, "\x04\x22\x4d\x18"sv, "lz4", "lz4 -dc FILE", Holds::another},
    Magic{0, "LZIP\x01"sv, "lzip", "lzip -dc FILE", Holds::another},
    Magic{0, "\x89LZO\0\r\n\x1a\n"sv, "lzop", "lzop -dc FILE", Holds::another},
    Magic{0, "\x1f\x9d\x90"sv, "compress", "zcat FILE", Holds::another},
    Magic{0, "7z\xbc\xaf\x27\x1c"sv, "7z", "7z x -so FILE", Holds::another},
    Magic{0, "Rar!\x1a\x07"sv, "rar", "unrar p -inul FILE", Holds::another},
    Magic{257, "ustar"sv, "tar", "tar -xOf FILE", Holds::another},
    Magic{30, "mimetypeapplication/epub+zip"sv, "an EPUB book", "pandoc -t plain FILE", Holds::text},
    Magic{30, "mimetypeapplication/vnd.oasis"sv, "an OpenDocument file", "pandoc -t plain FILE", Holds::text},
    Magic{30, "[Content_Types].xml"sv, "an Office file", "pandoc -t plain FILE", Holds::text},
    Magic{0, "PK\x03\x04"sv, "zip", "unzip -p FILE", Holds::another},
    Magic{0, "PAR1"sv, "a Parquet file", "import pandas; table = pandas.read_parquet(FILE)", Holds::table},
    Magic{0, "ARROW1"sv, "an Arrow file", "from pyarrow import ipc; table = ipc.open_file(FILE).read_all().to_pandas()",
          Holds::table},
    Magic{0, "\xff\xff\xff\xff"sv, "an Arrow stream, as saved by datasets",
          "from pyarrow import ipc; table = ipc.open_stream(FILE).read_all().to_pandas()", Holds::table},
    Magic{0, "FEA1"sv, "a Feather file", "import pandas; table = pandas.read_feather(FILE)", Holds::table},
    Magic{0, "ORC"sv, "an ORC file", "import pandas; table = pandas.read_orc(FILE)", Holds::table},
    Magic{0, "Obj\x01"sv, "an Avro file",
          "import pandas, fastavro; table = pandas.DataFrame(fastavro.reader(open(FILE, 'rb')))", Holds::table},
    Magic{0, "\xff\xfe\0\0"sv, "UTF-32", "iconv -f UTF-32 -t UTF-8 FILE", Holds::text},
    Magic{0, "\0\0\xfe\xff"sv, "UTF-32", "iconv -f UTF-32 -t UTF-8 FILE", Holds::text},
    Magic{0, "\xff\xfe"sv, "UTF-16", "iconv -f UTF-16 -t UTF-8 FILE", Holds::text},
    Magic{0, "\xfe\xff"sv, "UTF-16", "iconv -f UTF-16 -t UTF-8 FILE", Holds::text},
    Magic{0, "%PDF-"sv, "a PDF file", "pdftotext FILE -", Holds::text},
    Magic{0, "{\\rtf"sv, "an RTF file", "pandoc -f rtf -t plain FILE", Holds::text},
    Magic{0, "\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"sv, "an old Office file", "catdoc FILE", Holds::text},
    Magic{0, "SQLite format 3\0"sv, "an SQLite database", "", Holds::nothing},
    Magic{0, "\x89HDF\r\n\x1a\n"sv, "an HDF5 file", "", Holds::nothing},
    Magic{0, "\x93NUMPY"sv, "a numpy array", "", Holds::nothing},
    Magic{0, "MMIDIDX\0\0"sv, "the index of a token file", "", Holds::nothing},
    Magic{0, "\x80\x02\x8a\x0a"sv, "a PyTorch file", "", Holds::nothing},
    Magic{0, "\x80\x04\x95"sv, "a Python pickle", "", Holds::nothing},
    Magic{0, "\x80\x05\x95"sv, "a Python pickle", "", Holds::nothing},
    Magic{0, "\x80\x03]q"sv, "a Python pickle", "", Holds::nothing},
    Magic{0, "\x80\x03}q"sv, "a Python pickle", "", Holds::nothing},
    Magic{0, "GGUF"sv, "a GGUF model", "", Holds::nothing},
    Magic{8, "{\"__metadata__\""sv, "a safetensors file", "", Holds::nothing},
    Magic{0, "\x89PNG\r\n"sv, "a PNG image", "", Holds::nothing},
    Magic{0, "\xff\xd8\xff"sv, "a JPEG image", "", Holds::nothing},
    Magic{0, "GIF8"sv, "a GIF image", "", Holds::nothing},
    Magic{0,
          "\x7f"
          "ELF"sv,
          "a program", "", Holds::nothing},
};

// Quotes a path with single quotes, for a shell or Python.
std::string in_quotes(const std::string& path, const char* quote_in_it) {
  std::string out = "'";
  for (const char c : path) out += c == '\'' ? quote_in_it : std::string(1, c);
  return out + "'";
}

bool is_packed(const KnownFile& known) { return known.holds == Holds::another; }

std::string in_words(const KnownFile& known) {
  return is_packed(known) ? "compressed or packed with " + known.name : known.name;
}

}  // namespace

std::string_view compression_in_name(std::string_view path) {
  static constexpr std::array<std::string_view, 3> endings = {".gz", ".zst", ".xz"};
  const auto found =
      std::find_if(endings.begin(), endings.end(), [&](std::string_view ending) { return path.ends_with(ending); });
  return found == endings.end() ? "" : *found;
}

std::optional<KnownFile> known_file(std::string_view head) {
  for (const Magic& magic : magics) {
    if (head.size() < magic.at + magic.bytes.size() || head.substr(magic.at, magic.bytes.size()) != magic.bytes)
      continue;
    if (magic.at == 30 && !head.starts_with("PK\x03\x04")) continue;
    return KnownFile{magic.name, magic.unpack, magic.holds};
  }
  return {};
}

std::optional<KnownFile> unmarked_utf16(std::string_view head) {
  constexpr size_t fewest = 4;  // zeros
  std::array<size_t, 2> zeros{};
  for (size_t i = 0; i < head.size(); i++) zeros[i % 2] += head[i] == '\0';
  for (const size_t high : {1u, 0u})
    if (zeros[high] >= std::max(fewest, head.size() / 5) && zeros[1 - high] == 0)
      return KnownFile{"UTF-16", fmt::format("iconv -f UTF-16{} -t UTF-8 FILE", high == 1 ? "LE" : "BE"), Holds::text};
  return {};
}

std::string unpack_command(const KnownFile& known, const std::string& path) {
  const bool is_table = known.holds == Holds::table;
  const std::string_view ending = compression_in_name(path);
  const bool is_unpacked_first = !ending.empty() && known.name != "tar";  // tar decompresses files by itself
  const auto quoted = [](const std::string& name, bool in_python) {
    return name == "FILE" && !in_python ? name : in_quotes(name, in_python ? "\\'" : "'\\''");
  };
  const std::string file = path == "-" || is_unpacked_first ? "FILE" : path;
  std::string command = known.unpack;
  command.replace(command.find("FILE"), 4, quoted(file, is_table));
  if (is_table)
    command = fmt::format("python3 -c \"{}; table.to_json('/dev/stdout', orient='records', lines=True)\"", command);
  if (!is_unpacked_first) return command;
  return fmt::format("{} -dc {} > FILE; {}",
                     ending == ".gz"    ? "gzip"
                     : ending == ".zst" ? "zstd"
                                        : "xz",
                     quoted(path, false), command);
}

void check_holds_text(std::string_view head, const std::string& path, bool json_lines) {
  std::optional<KnownFile> known = known_file(head);
  if (!known) known = unmarked_utf16(head);
  if (!known) return;
  const std::string subject = path == "-" ? "the standard input" : path;
  const bool is_inside = !compression_in_name(path).empty();
  const std::string what =
      fmt::format("{} {} {}, not a text in UTF-8", subject, is_inside ? "holds what is" : "is", in_words(*known));
  if (known->holds == Holds::nothing) {
    const bool is_tokens = head.starts_with("\x93NUMPY") || head.starts_with("MMIDIDX");
    FAIL("{}; {}", what,
         is_tokens ? "if it holds tokens, name it as data.train: they need no prepare"
                   : "write its texts into JSON lines or a text file, and name that file");
  }
  FAIL("{}; this reads it: {} | megalith prepare --text -{} ...", what, unpack_command(*known, path),
       known->holds == Holds::table || json_lines ? " --field text" : "");
}

void check_holds_tokens(std::string_view head, const std::string& path) {
  const std::optional<KnownFile> known = known_file(head);
  if (!known) return;
  switch (known->holds) {
    case Holds::another:
      FAIL("{} is {}, and token files must be unpacked: run {} > tokens.bin, and name that file", path,
           in_words(*known), unpack_command(*known, path));
    case Holds::table:
    case Holds::text:
      FAIL(
          "{} is {}, not tokens; make tokens of its texts with {} | megalith prepare --text -{} ..., and name the "
          "train.bin that this writes",
          path, in_words(*known), unpack_command(*known, path), known->holds == Holds::table ? " --field text" : "");
    case Holds::nothing:
      FAIL("{} is {}, not tokens; name a token file of prepare, or ids saved with numpy.save", path, in_words(*known));
  }
}

}  // namespace megalith
