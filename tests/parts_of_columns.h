// Reads of a source that begin and end anywhere: what ranks of every layout ask for.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "checkpoints/tensor_source.h"

namespace megalith::test {

// Expects that every block of columns of a tensor, in runs of a few elements, holds what a read of the whole tensor
// holds there.
inline void expect_parts_of_columns(TensorSource& source, const std::string& name) {
  const TensorShard whole = whole_tensor(name, source.shape(name));
  std::vector<float> all(static_cast<size_t>(whole.numel()));
  source.read(whole, all.data());
  const int64_t columns = whole.cols();
  for (int64_t begin = 0; begin < columns; begin++)
    for (int64_t end = begin + 1; end <= columns; end++)
      for (const int64_t run : {int64_t{1}, end - begin, 2 * (end - begin) + 1, whole.numel()}) {
        TensorShard part = whole;
        part.columns = {begin, end};
        const int64_t count = whole.rows() * (end - begin);
        for (int64_t at = 0; at < count; at += run) {
          part.elements = {at, std::min(at + run, count)};
          std::vector<float> read(static_cast<size_t>(part.numel()));
          source.read(part, read.data());
          for (int64_t e = part.elements.begin; e < part.elements.end; e++)
            ASSERT_EQ(read[static_cast<size_t>(e - at)],
                      all[static_cast<size_t>(e / (end - begin) * columns + begin + e % (end - begin))])
                << describe(part) << ", element " << e;
        }
      }
}

}  // namespace megalith::test
