#include "checkpoints/hdf5_file.h"

#include "checkpoints/writer.h"

#include <hdf5.h>

#include <algorithm>
#include <bit>
#include <utility>

#include "checkpoints/checksum.h"
#include "checkpoints/reader.h"
#include "kernels/system/check.h"
#include "kernels/system/counted.h"
#include "kernels/system/files.h"
#include "kernels/system/process_limits.h"

namespace megalith {
namespace {

static_assert(std::endian::native == std::endian::little, "elements are written in the byte order of memory");

// At exit the library would try again to close a file that it could not close (at a limit on file sizes), and kill the
// process. So its exit handler is disabled: we close everything that we open. Call this before the library.
void do_nothing_at_exit() { [[maybe_unused]] static const herr_t once = H5dont_atexit(); }

// HDF5 1.10 ends the process silently if malloc fails: exit(-1) in H5I_register, a fault in H5O__alloc. So this checks
// beforehand that the process can allocate more than HDF5 takes (its metadata cache has 2 MiB, a dataset some KiB) plus
// `more` bytes.
void check_memory_for_hdf5(size_t datasets, size_t more = 0) {
  const size_t bytes = (size_t{16} << 20) + (datasets << 14) + more;
  check_memory(bytes, fmt::format("the layout of a checkpoint by HDF5 ({})", counted(datasets, "dataset")));
}

}  // namespace

void start_hdf5() {
  constexpr size_t of_saving_thread = size_t{32} << 20;  // its stack and buffers
  check_memory_for_hdf5(1, of_saving_thread);
  do_nothing_at_exit();
  CHECK(H5open() >= 0, "the HDF5 library does not start; has this process enough memory (ulimit -v)?");
  HDF5Layout({{.shard = whole_tensor("start", {1}), .dataset = "start"}});
}

namespace {

// Suppresses HDF5's messages on stderr; the innermost one becomes part of ours.
class QuietErrors {
 public:
  QuietErrors() {
    do_nothing_at_exit();
    H5Eget_auto2(H5E_DEFAULT, &function_, &data_);
    H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);
  }
  ~QuietErrors() { H5Eset_auto2(H5E_DEFAULT, function_, data_); }
  QuietErrors(const QuietErrors&) = delete;
  QuietErrors& operator=(const QuietErrors&) = delete;

 private:
  H5E_auto2_t function_ = nullptr;
  void* data_ = nullptr;
};

std::string innermost_error() {
  std::string message = "no reason given";
  const auto visit = [](unsigned, const H5E_error2_t* e, void* out) -> herr_t {
    if (e->desc) *static_cast<std::string*>(out) = fmt::format("{} ({})", e->desc, e->func_name ? e->func_name : "?");
    return 0;
  };
  H5Ewalk2(H5E_DEFAULT, H5E_WALK_DOWNWARD, visit, &message);
  H5Eclear2(H5E_DEFAULT);
  return message;
}

#define HDF5_CHECK(call)                                                 \
  [&] {                                                                  \
    const auto result = (call);                                          \
    CHECK(result >= 0, "HDF5 refused {}: {}", #call, innermost_error()); \
    return result;                                                       \
  }()

class Handle {
 public:
  using Close = herr_t (*)(hid_t);
  Handle(hid_t id, Close how) : id_(id), close_(how) {}
  ~Handle() {
    if (id_ >= 0) close_(id_);
  }
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;
  operator hid_t() const { return id_; }
  // Closes now; the destructor does not try again.
  herr_t close() { return close_(std::exchange(id_, -1)); }

 private:
  hid_t id_;
  Close close_;
};

// Approximate size of a dataset's header, attributes and group entry, so that all structure is at the file's beginning.
constexpr size_t structure_bytes = 768;

Handle string_type(size_t length) {
  const hid_t type = HDF5_CHECK(H5Tcopy(H5T_C_S1));
  HDF5_CHECK(H5Tset_size(type, length));
  return {type, H5Tclose};
}

void write_attribute(hid_t object, const char* name, const std::string& value) {
  const Handle type = string_type(value.size());
  const Handle space(HDF5_CHECK(H5Screate(H5S_SCALAR)), H5Sclose);
  const Handle attribute(HDF5_CHECK(H5Acreate2(object, name, type, space, H5P_DEFAULT, H5P_DEFAULT)), H5Aclose);
  HDF5_CHECK(H5Awrite(attribute, type, value.data()));
}

void write_attribute(hid_t object, const char* name, const std::vector<int64_t>& values) {
  const hsize_t length = values.size();
  const Handle space(HDF5_CHECK(H5Screate_simple(1, &length, nullptr)), H5Sclose);
  const Handle attribute(HDF5_CHECK(H5Acreate2(object, name, H5T_STD_I64LE, space, H5P_DEFAULT, H5P_DEFAULT)),
                         H5Aclose);
  HDF5_CHECK(H5Awrite(attribute, H5T_NATIVE_INT64, values.data()));
}

// HDF5 has no bf16, so its bits are stored.
hid_t type_of(const DatasetRecord& d) { return d.dtype == DType::bf16 ? H5T_STD_U16LE : H5T_IEEE_F32LE; }

// Returns the size of the structure before the elements. Until November 24, 2026, it was 2048 bytes in every file, and
// more of the structure was between the elements.
size_t first_block(const std::vector<DatasetRecord>& datasets) {
  constexpr size_t least = 2048;
  const size_t all = std::max(least, structure_bytes * datasets.size());
  const bool before = !datasets.empty() && 0 < datasets[0].offset && datasets[0].offset < static_cast<int64_t>(all);
  return before ? least : all;
}

// Stands for the checksum of the i-th dataset during layout, to find its offset. The library writes each attribute
// once. If some other text of ours began like this, it would be found as one too many (Error).
constexpr uint64_t stand_in = uint64_t{0x5ca1ab1e} << 32;

void describe_in(hid_t dataset, const DatasetRecord& d, uint64_t checksum) {
  write_attribute(dataset, "tensor", d.shard.name);
  write_attribute(dataset, "shape", d.shard.shape);
  write_attribute(dataset, "columns", std::vector{d.shard.columns.begin, d.shard.columns.end});
  write_attribute(dataset, "elements", std::vector{d.shard.elements.begin, d.shard.elements.end});
  write_attribute(dataset, "xxh3_64", hex(checksum));
}

// Returns the offset of each placeholder in the structure.
std::vector<size_t> places_of_checksums(const std::string& structure, size_t datasets) {
  const std::string digits = hex(stand_in), begin = digits.substr(0, digits.size() / 2);
  std::vector<size_t> places(datasets, std::string::npos);
  for (size_t at = 0; (at = structure.find(begin, at)) != std::string::npos; at += digits.size()) {
    const uint64_t i = from_hex(structure.substr(at, digits.size())) - stand_in;
    CHECK(i < datasets && places[i] == std::string::npos, "HDF5 wrote the checksum of dataset {} of {} more than once",
          i, datasets);
    places[i] = at;
  }
  const auto absent = std::find(places.begin(), places.end(), std::string::npos);
  CHECK(absent == places.end(), "HDF5 wrote no checksum of dataset {}", absent - places.begin());
  return places;
}

}  // namespace

std::string structure_of(const File& file, const std::vector<DatasetRecord>& datasets,
                         const std::vector<int64_t>& offsets) {
  std::string bytes;
  int64_t position = 0;
  const auto copy_until = [&](int64_t next) {
    const size_t before = bytes.size();
    bytes.resize(before + static_cast<size_t>(next - position));
    file.read(position, bytes.data() + before, next - position);
  };
  for (size_t i = 0; i < datasets.size(); i++) {
    copy_until(offsets[i]);
    position = offsets[i] + datasets[i].bytes();
  }
  copy_until(file.size());
  return bytes;
}

std::string hdf5_version() {
  do_nothing_at_exit();
  unsigned major = 0, minor = 0, release = 0;
  H5get_libversion(&major, &minor, &release);
  return fmt::format("{}.{}.{}", major, minor, release);
}

HDF5Layout::HDF5Layout(const std::vector<DatasetRecord>& datasets) {
  check_memory_for_hdf5(datasets.size());
  const QuietErrors quiet;
  const Handle access(HDF5_CHECK(H5Pcreate(H5P_FILE_ACCESS)), H5Pclose);
  HDF5_CHECK(H5Pset_fapl_stdio(access));  // the default driver resolves the link, whose target has no path
  // The earliest format, which all versions of the library write alike.
  HDF5_CHECK(H5Pset_libver_bounds(access, H5F_LIBVER_EARLIEST, H5F_LIBVER_LATEST));
  HDF5_CHECK(H5Pset_meta_block_size(access, first_block(datasets)));
  const File memory = File::in_memory();
  Handle file(HDF5_CHECK(H5Fcreate(memory.path().c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, access)), H5Fclose);
  {
    const Handle root(HDF5_CHECK(H5Gopen2(file, "/", H5P_DEFAULT)), H5Gclose);
    write_attribute(root, "format", "megalith checkpoint");
    write_attribute(root, "version", std::vector<int64_t>{1});
  }

  const Handle links(HDF5_CHECK(H5Pcreate(H5P_LINK_CREATE)), H5Pclose);
  HDF5_CHECK(H5Pset_create_intermediate_group(links, 1));
  const Handle creation(HDF5_CHECK(H5Pcreate(H5P_DATASET_CREATE)), H5Pclose);
  HDF5_CHECK(H5Pset_layout(creation, H5D_CONTIGUOUS));
  HDF5_CHECK(H5Pset_alloc_time(creation, H5D_ALLOC_TIME_EARLY));
  HDF5_CHECK(H5Pset_fill_time(creation, H5D_FILL_TIME_NEVER));
  HDF5_CHECK(H5Pset_obj_track_times(creation, false));
  int64_t end = 0;
  for (const DatasetRecord& d : datasets) {
    const hsize_t length = static_cast<hsize_t>(d.shard.numel());
    const Handle space(HDF5_CHECK(H5Screate_simple(1, &length, nullptr)), H5Sclose);
    const hid_t id = H5Dcreate2(file, d.dataset.c_str(), type_of(d), space, links, creation, H5P_DEFAULT);
    CHECK(id >= 0, "HDF5 cannot create dataset {} (is one name a prefix of another's path?): {}", d.dataset,
          innermost_error());
    const Handle dataset(id, H5Dclose);
    describe_in(dataset, d, stand_in + offsets_.size());
    const haddr_t offset = H5Dget_offset(dataset);
    CHECK(offset != HADDR_UNDEF && static_cast<int64_t>(offset) >= end, "HDF5 gave dataset {} no offset after {}: {}",
          d.dataset, end, innermost_error());
    CHECK_INTACT(d.offset == 0 || static_cast<int64_t>(offset) == d.offset,
                 "the elements of {} are at byte {}; HDF5 puts them at {}", d.dataset, d.offset, offset);
    offsets_.push_back(static_cast<int64_t>(offset));
    end = offsets_.back() + d.bytes();
  }
  HDF5_CHECK(file.close());

  structure_ = structure_of(memory, datasets, offsets_);
  checksums_ = places_of_checksums(structure_, datasets.size());
}

std::string HDF5Layout::structure(const std::vector<uint64_t>& checksums) const {
  std::string all = structure_;
  for (size_t i = 0; i < checksums.size(); i++) {
    const std::string digits = hex(checksums[i]);
    all.replace(checksums_[i], digits.size(), digits);
  }
  return all;
}

}  // namespace megalith
