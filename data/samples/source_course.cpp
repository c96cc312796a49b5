#include "data/samples/source_course.h"

#include <algorithm>

#include "data/samples/packs.h"
#include "kernels/system/check.h"

namespace megalith {

namespace {

void add(Stretches& to, int64_t begin, int64_t end) {
  if (begin >= end) return;
  if (!to.empty() && to.back().end == begin)
    to.back().end = end;
  else
    to.push_back({begin, end});
}

Stretches merged(Stretches all) {
  std::ranges::sort(all, {}, &Stretch::begin);
  Stretches result;
  for (const Stretch& s : all) add(result, s.begin, s.end);
  return result;
}

// Returns the tokens at these ascending places of the joined stretches.
Stretches part_of(const Stretches& stretches, const Stretches& places) {
  Stretches found;
  int64_t at = 0;  // place of the stretch
  auto stretch = stretches.begin();
  for (const Stretch& place : places)
    for (int64_t begin = place.begin; begin < place.end;) {
      while (begin >= at + stretch->end - stretch->begin) {
        at += stretch->end - stretch->begin;
        ++stretch;
      }
      const int64_t end = std::min(place.end, at + stretch->end - stretch->begin);
      add(found, stretch->begin + begin - at, stretch->begin + end - at);
      begin = end;
    }
  return found;
}

// The last token of a source is not an input, since nothing follows it.
Stretches all_of(const SampleCut& cut) { return {{0, cut.masked ? cut.tokens : cut.tokens - 1}}; }

}  // namespace

SampleCut usual(SampleCut cut) {
  if (!cut.shuffle) cut.seed = 0;
  if (!cut.masked) cut.pack = true;
  return cut;
}

int64_t tokens_in(const Stretches& stretches) {
  int64_t sum = 0;
  for (const Stretch& s : stretches) sum += s.end - s.begin;
  return sum;
}

void SourceCourse::cut(const SampleCut& cut, const TokenStream* stream) {
  if (cut_ == cut) return;
  CHECK(!cut_ || (cut.tokens >= cut_->tokens && cut.masked == cut_->masked),
        "a source had {} tokens and now has {}: it is a different one", cut_ ? cut_->tokens : 0, cut.tokens);
  CHECK(!cut.masked || stream, "the examples of a masked source are needed to continue in it");
  std::optional<Stretches> left;
  if (cut_ && (rest_ || taken_ > 0)) {
    left = unseen();
    add(*left, all_of(*cut_)[0].end, all_of(cut)[0].end);
  }
  cut_ = cut;
  taken_ = rest_samples_ = 0;
  rest_.reset();
  if (cut.masked) masked_ = stream->first(cut.tokens);
  whole_ = cut.masked ? Packs(*masked_, cut.sequence_length, cut.pack).size() : (cut.tokens - 1) / cut.sequence_length;
  if (!left) return;
  if (cut.masked)
    rest_samples_ = left->empty() ? 0 : Packs(*masked_, cut.sequence_length, cut.pack, &*left).size();
  else
    rest_samples_ = tokens_in(*left) / cut.sequence_length;
  if (rest_samples_ > 0)
    rest_ = std::move(left);
  else
    epoch_++;
}

int64_t SourceCourse::samples_of_part() const { return rest_ ? rest_samples_ : whole_; }

void SourceCourse::take(int64_t samples) {
  CHECK(cut_, "samples are taken from a source that is not cut into samples");
  taken_ += samples;
  if (rest_ && taken_ > rest_samples_) {
    taken_ -= rest_samples_;
    rest_.reset();
    rest_samples_ = 0;
    epoch_++;
  }
  if (rest_ || taken_ <= whole_) return;
  // Exactly one epoch's samples count as the end of that epoch, not as the beginning of the next.
  const int64_t ended = (taken_ - 1) / whole_;
  epoch_ += ended;
  taken_ -= ended * whole_;
}

SourceBegin SourceCourse::begin() const {
  return {.key = key_, .epoch = epoch_, .taken = taken_, .rest = rest_ ? rest_samples_ : 0};
}

Stretches SourceCourse::unseen() const {
  const int64_t samples = samples_of_part(), T = cut_->sequence_length;
  std::vector<bool> seen(static_cast<size_t>(samples));
  for (int64_t p = 0; p < taken_; p++)
    seen[static_cast<size_t>(index_at(p, samples, cut_->shuffle, cut_->seed, key_, epoch_))] = true;
  const Stretches all = rest_ ? *rest_ : all_of(*cut_);
  Stretches left;
  if (cut_->masked) {
    const Packs packs(*masked_, T, cut_->pack, rest_ ? &*rest_ : nullptr);
    for (int64_t i = 0; i < samples; i++)
      if (!seen[static_cast<size_t>(i)])
        for (const Stretch& example : packs.places_of(i)) left.push_back(example);
    return merged(std::move(left));
  }
  for (int64_t i = 0; i < samples; i++)
    if (!seen[static_cast<size_t>(i)]) add(left, i * T, (i + 1) * T);
  add(left, samples * T, tokens_in(all));
  return part_of(all, left);
}

}  // namespace megalith
