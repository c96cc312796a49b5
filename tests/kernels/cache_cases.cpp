// Attention over keys and values that are kept.
#include "cases.h"

#include <algorithm>

namespace megalith::test {

namespace {
std::string sizes_str(const CacheSizes& s) {
  return fmt::format("{} rows of {} places x {} of {}x{}x{}", s.rows, s.places, s.H, s.kv(), s.T, s.D);
}
// Rows at different positions; the last is at the last position of the last place.
Arg rows_of(const CacheSizes& s) {
  Arg arg{.name = "rows", .dtype = DType::i32, .shape = {s.rows, 2}, .values = {}};
  for (int64_t n = 0; n < s.rows; n++) {
    const int64_t index = s.places * s.T - 1 - (s.rows - 1 - n) * std::max<int64_t>(1, s.places * s.T / s.rows);
    arg.values.push_back(static_cast<double>(index / s.T));
    arg.values.push_back(static_cast<double>(index % s.T));
  }
  return arg;
}
// Where the keys (kind 0) or values (1) of a head and position begin.
size_t begin_of(const CacheSizes& s, int64_t kind, int64_t place, int64_t h, int64_t position) {
  return at((((kind * s.places + place) * s.kv() + h) * s.T + position) * s.D);
}

// With heads of one feature that share no keys any number of columns is that of some number of heads.
bool any_columns(const CacheSizes& s) { return s.D == 1 && s.kv() == 1; }
}  // namespace

Case keep_keys_values_case(const CacheSizes& s, DType t) {
  const int64_t A = s.kv() * s.D, width = (s.H + 2 * s.kv()) * s.D;
  Case made{.op = "keep_keys_values",
            .shape = sizes_str(s),
            .dtype = t,
            .args = {out("cache", t, {2 * s.places, s.kv(), s.T, s.D}), in("qkv", t, {s.rows, width}), rows_of(s)},
            .run = [](Stream& stream,
                      const Tensors& a) { launch(stream, KeepKeysValues{.cache = a[0], .qkv = a[1], .rows = a[2]}); },
            .twin =
                [=](Doubles& d) {
                  for (int64_t n = 0; n < s.rows; n++)
                    for (int64_t kind = 0; kind < 2; kind++)
                      for (int64_t i = 0; i < A; i++)
                        d["cache"][begin_of(s, kind, static_cast<int64_t>(d["rows"][at(2 * n)]), i / s.D,
                                            static_cast<int64_t>(d["rows"][at(2 * n + 1)])) +
                                   at(i % s.D)] = d["qkv"][at(n * width + s.H * s.D + kind * A + i)];
                }};
  made.args[1].any_shape = any_columns(s);
  return made;
}

Case cached_attention_case(const CacheSizes& s, DType t) {
  const int64_t A = s.H * s.D, width = (s.H + 2 * s.kv()) * s.D;
  return {.op = "cached_attention",
          .shape = sizes_str(s),
          .dtype = t,
          .args = {out("out", t, {s.rows, A}), in("qkv", t, {s.rows, width}),
                   in("cache", t, {2 * s.places, s.kv(), s.T, s.D}), rows_of(s)},
          .run =
              [=](Stream& stream, const Tensors& a) {
                launch(stream, CachedAttention{.out = a[0], .qkv = a[1], .cache = a[2], .rows = a[3], .longest = s.T});
              },
          .twin =
              [=](Doubles& d) {
                for (int64_t n = 0; n < s.rows; n++)
                  for (int64_t h = 0; h < s.H; h++) {
                    const auto place = static_cast<int64_t>(d["rows"][at(2 * n)]),
                               position = static_cast<int64_t>(d["rows"][at(2 * n + 1)]);
                    Values weights(at(position + 1));
                    double total = 0;
                    for (int64_t j = 0; j <= position; j++) {
                      double score = 0;
                      for (int64_t c = 0; c < s.D; c++)
                        score += d["qkv"][at(n * width + h * s.D + c)] *
                                 d["cache"][begin_of(s, 0, place, h / (s.H / s.kv()), j) + at(c)];
                      total += weights[at(j)] = std::exp(score / std::sqrt(double(s.D)));
                    }
                    for (int64_t c = 0; c < s.D; c++) {
                      double sum = 0;
                      for (int64_t j = 0; j <= position; j++)
                        sum +=
                            weights[at(j)] / total * d["cache"][begin_of(s, 1, place, h / (s.H / s.kv()), j) + at(c)];
                      d["out"][at(n * A + h * s.D + c)] = sum;
                    }
                  }
              }};
}

}  // namespace megalith::test
