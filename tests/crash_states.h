// Every state in which a loss of power can leave a disk (simulated_disk.h), after each call of a program: the calls of
// SQLite's and LevelDB's crash tests, from a recording instead of a file system of our own.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <unordered_set>
#include <vector>

#include "kernels/system/file_calls.h"
#include "tests/long_tests.h"
#include "tests/simulated_disk.h"

namespace megalith::test {

struct CrashCounts {
  int64_t moments = 0, states = 0, distinct = 0;  // distinct: together with what was promised by then
};

class CrashStates {
 public:
  // Whether `tree` keeps all that was promised after so many calls.
  using Holds = std::function<bool(const DiskTree& tree, size_t calls)>;
  // Says as a number what is promised after so many calls: where it is the same, equal states are looked at once.
  using Promise = std::function<int64_t(size_t calls)>;

  CrashStates(Promise promise, Holds holds) : promise_(std::move(promise)), holds_(std::move(holds)) {}

  // Goes through the calls, except those left out, from the first of these on, and stops at the first state that breaks
  // a promise: false then. All of `disk` is kept. Which states are looked at is said in long_tests.h.
  bool all_hold(SimulatedDisk disk, const std::vector<DiskCall>& calls, const std::set<size_t>& left_out = {}) {
    const size_t from = left_out.empty() ? 0 : *left_out.begin() + 1;  // before it nothing differs
    if (from == 0 && !look(disk, 0)) return false;
    for (size_t i = 0; i < calls.size(); i++) {
      if (left_out.contains(i)) continue;
      disk.make(calls[i]);
      if (i < from || (!taken("CrashStates.RepeatedWrites") && is_followed_by_its_like(calls, i))) continue;
      if (!look(disk, i + 1)) return false;
    }
    return true;
  }
  const CrashCounts& counts() const { return counts_; }

 private:
  // A write before another of the same file: what the later one may leave has most of what this one may.
  static bool is_followed_by_its_like(const std::vector<DiskCall>& calls, size_t i) {
    const auto is_write_of = [&](size_t k) { return k < calls.size() && calls[k].event.call == FileCall::write; };
    return is_write_of(i) && is_write_of(i + 1) && calls[i].event.path == calls[i + 1].event.path;
  }

  bool look(const SimulatedDisk& disk, size_t calls) {
    counts_.moments++;
    for (const std::vector<bool>& made : choices(disk.num_changes())) {
      const std::vector<SimulatedDisk::Node> files = disk.unsynced_files(made);
      std::vector<std::vector<std::string>> variants;
      for (const auto file : files) variants.push_back(variants_of(disk, file));
      for (const std::vector<size_t>& pick : picks(variants)) {
        counts_.states++;
        const DiskTree tree = disk.tree(made, [&](SimulatedDisk::Node node) {
          const auto found = std::lower_bound(files.begin(), files.end(), node);
          if (found == files.end() || *found != node) return disk.kept(node);
          const auto i = static_cast<size_t>(found - files.begin());
          return variants[i][pick[i]];
        });
        if (!seen_.insert(key_of(tree, promise_(calls))).second) continue;
        counts_.distinct++;
        if (!holds_(tree, calls)) return false;
      }
    }
    return true;
  }

  // Which of n changes the disk has.
  static std::vector<std::vector<bool>> choices(size_t n) {
    std::set<std::vector<bool>> all;
    if (n <= as_size(taken("CrashStates.Subsets"))) {
      for (size_t bits = 0; bits < size_t{1} << n; bits++) {
        std::vector<bool> made(n);
        for (size_t i = 0; i < n; i++) made[i] = bits >> i & 1;
        all.insert(made);
      }
    }
    for (size_t k = 0; k <= n; k++) {
      std::vector<bool> first(n), one(n), others(n, true);
      std::fill(first.begin(), first.begin() + static_cast<std::ptrdiff_t>(k), true);
      all.insert(first);
      if (k == n) break;
      one[k] = true;
      others[k] = false;
      all.insert(one);
      all.insert(others);
    }
    return {all.begin(), all.end()};
  }

  // Returns what a file may hold: nothing of its writes first, all of them last.
  static std::vector<std::string> variants_of(const SimulatedDisk& disk, SimulatedDisk::Node file) {
    const std::vector<SimulatedDisk::Write>& writes = disk.writes(file);
    std::vector<std::string> variants{disk.kept(file)};
    const auto add = [&](const std::function<void(size_t, SimulatedDisk::Write&)>& spoil) {
      std::string bytes = disk.kept(file);
      for (size_t i = 0; i < writes.size(); i++) {
        SimulatedDisk::Write write = writes[i];
        spoil(i, write);
        SimulatedDisk::apply(write, bytes);
      }
      if (std::find(variants.begin(), variants.end(), bytes) == variants.end()) variants.push_back(std::move(bytes));
    };
    const auto zeros = [](SimulatedDisk::Write& write) { std::fill(write.bytes.begin(), write.bytes.end(), '\0'); };
    const auto halve = [](SimulatedDisk::Write& write) { write.bytes.resize(write.bytes.size() / 2); };
    add([&](size_t, SimulatedDisk::Write& write) { zeros(write); });
    const size_t last = writes.size() - 1;
    for (size_t torn = writes.size() <= as_size(taken("CrashStates.TornWrites")) ? 0 : last; torn <= last; torn++) {
      add([&](size_t i, SimulatedDisk::Write& write) {  // this one is the last that arrives, in part
        if (i == torn) halve(write);
        if (i > torn) write = {0, {}};
      });
      add([&](size_t i, SimulatedDisk::Write& write) {  // the others arrive
        if (i == torn) zeros(write);
      });
    }
    add([](size_t, SimulatedDisk::Write&) {});
    return variants;
  }

  // Which variant of each file.
  static std::vector<std::vector<size_t>> picks(const std::vector<std::vector<std::string>>& variants) {
    std::set<std::vector<size_t>> all;
    std::vector<size_t> none(variants.size(), 0), whole;
    for (const auto& v : variants) whole.push_back(v.size() - 1);
    all.insert({none, whole});
    size_t product = 1;
    for (const auto& v : variants) product = std::min<size_t>(product * v.size(), 1 << 20);
    if (variants.size() <= 3 && product <= as_size(taken("CrashStates.Combinations"))) {
      for (size_t n = 0; n < product; n++) {
        std::vector<size_t> pick;
        size_t left = n;
        for (const auto& v : variants) {
          pick.push_back(left % v.size());
          left /= v.size();
        }
        all.insert(pick);
      }
      return {all.begin(), all.end()};
    }
    for (size_t i = 0; i < variants.size(); i++)
      for (size_t k = 0; k < variants[i].size(); k++)
        for (int64_t others = 0; others < taken("CrashStates.Others"); others++) {
          std::vector<size_t> pick = others == 0 ? whole : none;
          pick[i] = k;
          all.insert(pick);
        }
    return {all.begin(), all.end()};
  }

  static size_t as_size(int64_t n) { return static_cast<size_t>(n); }

  static size_t key_of(const DiskTree& tree, int64_t promise) {
    std::string text = std::to_string(promise);
    for (const auto& [path, bytes] : tree)
      text += '\0' + path + '\0' + (bytes ? std::to_string(bytes->size()) + ':' + *bytes : "/");
    return std::hash<std::string>{}(text);
  }

  Promise promise_;
  Holds holds_;
  CrashCounts counts_;
  std::unordered_set<size_t> seen_;
};

// The places of the calls that flush what was not flushed before: a program without one of them is to be caught.
inline std::vector<size_t> flushes_in(SimulatedDisk disk, const std::vector<DiskCall>& calls) {
  std::vector<size_t> places;
  for (size_t i = 0; i < calls.size(); i++) {
    if (disk.has_to_flush(calls[i])) places.push_back(i);
    disk.make(calls[i]);
  }
  return places;
}

// Looks at a flush without which all promises hold: returns nothing if it flushes a folder's names that a later call
// flushes as well, before the next of them is promised to be there, and otherwise what it is.
inline std::string needless(const std::vector<DiskCall>& calls, size_t place) {
  const FileEvent& flush = calls[place].event;
  const std::string what = fmt::format("call {}, a flush of {}", place, flush.path);
  if (flush.call == FileCall::sync) return what;
  for (size_t i = place + 1; i < calls.size(); i++)
    if (calls[i].event.call == FileCall::sync_folder && calls[i].event.path == flush.path) return "";
  return what;
}

// That each of the flushes, or one in `stride`, breaks a promise where it is left out, or is no needless one.
// Returns the places of those that another repeats. `states` makes what looks at the states anew.
inline std::vector<size_t> expect_flushes_to_count(const SimulatedDisk& disk, const std::vector<DiskCall>& calls,
                                                   int64_t stride, const std::function<CrashStates()>& states) {
  std::vector<size_t> repeated;
  size_t tried = 0;
  const std::vector<size_t> flushes = flushes_in(disk, calls);
  for (size_t k = 0; k < flushes.size(); k += static_cast<size_t>(stride), tried++) {
    if (!states().all_hold(disk, calls, {flushes[k]})) continue;
    repeated.push_back(flushes[k]);
    EXPECT_EQ(needless(calls, flushes[k]), "");
  }
  EXPECT_LT(repeated.size(), tried);
  fmt::print("  of {} flushes {} tried: {} noticed, {} repeated by another\n", flushes.size(), tried,
             tried - repeated.size(), repeated.size());
  return repeated;
}

}  // namespace megalith::test
