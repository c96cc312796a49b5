#include "tests/fuzz/library_view.h"

#include <hdf5.h>

#include <vector>

#include "checkpoints/checksum.h"
#include "kernels/base/check.h"

namespace megalith::fuzz {

namespace {

// Closed with the object; an id below 0 is what the library refuses with.
class Id {
 public:
  Id(hid_t id, herr_t (*close)(hid_t), const char* what) : id_(id), close_(close) {
    CHECK(id >= 0, "HDF5 refuses {}", what);
  }
  ~Id() { close_(id_); }
  Id(const Id&) = delete;
  Id& operator=(const Id&) = delete;
  operator hid_t() const { return id_; }

 private:
  hid_t id_;
  herr_t (*close_)(hid_t);
};

std::string string_of(hid_t object, const char* name) {
  const Id attribute(H5Aopen(object, name, H5P_DEFAULT), H5Aclose, name);
  const Id type(H5Aget_type(attribute), H5Tclose, "the type of an attribute");
  std::string value(H5Tget_size(type), '\0');
  CHECK(H5Aread(attribute, type, value.data()) >= 0, "HDF5 does not read {}", name);
  return value;
}

std::vector<int64_t> integers_of(hid_t object, const char* name) {
  const Id attribute(H5Aopen(object, name, H5P_DEFAULT), H5Aclose, name);
  const Id space(H5Aget_space(attribute), H5Sclose, "the space of an attribute");
  std::vector<int64_t> values(static_cast<size_t>(H5Sget_simple_extent_npoints(space)));
  CHECK(H5Aread(attribute, H5T_NATIVE_INT64, values.data()) >= 0, "HDF5 does not read {}", name);
  return values;
}

void compare(hid_t file, const DatasetRecord& d) {
  const Id dataset(H5Dopen2(file, d.dataset.c_str(), H5P_DEFAULT), H5Dclose, d.dataset.c_str());
  const Id space(H5Dget_space(dataset), H5Sclose, "a space"), type(H5Dget_type(dataset), H5Tclose, "a type");
  const hid_t expected = d.dtype == DType::bf16 ? H5T_STD_U16LE : H5T_IEEE_F32LE;
  CHECK(H5Dget_offset(dataset) == static_cast<haddr_t>(d.offset) && H5Sget_simple_extent_ndims(space) == 1 &&
            H5Sget_simple_extent_npoints(space) == d.piece.numel() && H5Tequal(type, expected) > 0,
        "dataset {} has another place, extent or type", d.dataset);
  const std::vector<int64_t> columns{d.piece.col_begin, d.piece.col_end}, elements{d.piece.begin, d.piece.end};
  CHECK(string_of(dataset, "tensor") == d.piece.name && integers_of(dataset, "shape") == d.piece.shape &&
            integers_of(dataset, "columns") == columns && integers_of(dataset, "elements") == elements &&
            string_of(dataset, "xxh3_64") == hex(d.checksum),
        "dataset {} has other attributes", d.dataset);
  std::vector<float> data(static_cast<size_t>(d.piece.numel()));
  CHECK(H5Dread(dataset, H5T_NATIVE_FLOAT, H5S_ALL, H5S_ALL, H5P_DEFAULT, data.data()) >= 0, "{} cannot be read",
        d.dataset);
}

}  // namespace

std::string library_view(const std::string& path, const FileRecord& record) {
  H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);
  try {
    const Id access(H5Pcreate(H5P_FILE_ACCESS), H5Pclose, "a list");
    H5Pset_fapl_stdio(access);
    const Id file(H5Fopen(path.c_str(), H5F_ACC_RDONLY, access), H5Fclose, path.c_str());
    for (const DatasetRecord& d : record.datasets) compare(file, d);
    return "";
  } catch (const Error& e) {
    return e.what();
  }
}

}  // namespace megalith::fuzz
