#include "kernels/stream/flight_recorder.h"

#include "kernels/system/mix.h"

namespace megalith {

namespace {

// Returns a free place, or a spare one that is not read: the group is then missing from the record, without other harm.
RecorderPage::Group& free_place(RecorderPage& in) {
  const auto found = std::find_if(in.groups.begin(), in.groups.end(), [](const auto& g) { return g.id == 0; });
  if (found != in.groups.end()) return *found;
  static RecorderPage::Group nowhere{};
  return nowhere;
}

}  // namespace

uint64_t FlightRecorder::next_id() { return mix_next(page_.job + ++ids_) | 1; }

RecordedGroup::RecordedGroup(FlightRecorder& recorder, uint64_t id, const std::string& name, int index, int size)
    : recorder_(recorder), id_(id), place_(free_place(recorder.page())), size_(size) {
  place_.name.fill('\0');
  std::copy_n(name.begin(), std::min(name.size(), place_.name.size() - 1), place_.name.begin());
  place_.index = index;
  place_.size = size;
  place_.begun = 0;
  place_.id.store(id, std::memory_order_release);
}

RecordedGroup::~RecordedGroup() { place_.id = 0; }

uint64_t RecordedGroup::id_of_part(int color) {
  return mix_next(mix_next(id_ + static_cast<uint64_t>(++splits_)) + static_cast<uint64_t>(color)) | 1;
}

}  // namespace megalith
