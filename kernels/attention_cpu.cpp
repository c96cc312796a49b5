#include <cmath>
#include <limits>
#include <vector>

#include "kernels/dropout_cpu.h"
#include "kernels/loops_cpu.h"
#include "kernels/ops_cpu.h"

namespace megalith::cpu {

void attention_forward(Tensor out_, Tensor lse_, Tensor qkv_, const AttentionDims& dims, const Dropout& d) {
  with_compute_type(qkv_.dtype(), [&](auto tag) {
    using E = decltype(tag);
    E* out = out_.data<E>();
    float* lse = lse_.data<float>();
    const E* qkv = qkv_.data<E>();
    const auto [B, T, H, D, first_head] = dims;
    const DropoutMask mask(d);
    const int64_t width = H * D;
    const float scale = 1.0f / std::sqrt(static_cast<float>(D));
    parallel_for(
        B * H, T * T * D, [=, B = B, T = T, H = H, D = D, first_head = first_head](int64_t begin, int64_t end) {
          std::vector<float> p(static_cast<size_t>(T)), keep(static_cast<size_t>(T), 1.0f), o(static_cast<size_t>(D));
          for (int64_t bh = begin; bh < end; bh++) {
            const int64_t b = bh / H, h = bh % H;
            for (int64_t i = 0; i < T; i++) {
              const E* q = qkv + (b * T + i) * 3 * width + h * D;
              float max = -std::numeric_limits<float>::infinity(), sum = 0;
              for (int64_t j = 0; j <= i; j++) {
                const E* k = qkv + (b * T + j) * 3 * width + width + h * D;
                float dot = 0;
                for (int64_t c = 0; c < D; c++) dot += float(q[c]) * float(k[c]);
                p[size_t(j)] = dot * scale;
                max = std::max(max, p[size_t(j)]);
              }
              for (int64_t j = 0; j <= i; j++) sum += p[size_t(j)] = std::exp(p[size_t(j)] - max);
              if (d.active())
                mask.draw(keep.data(), uint64_t(d.first_row + b * T + i), uint64_t(first_head + h) << 32, 0, i + 1);
              for (auto& v : o) v = 0;
              for (int64_t j = 0; j <= i; j++) {
                const E* v = qkv + (b * T + j) * 3 * width + 2 * width + h * D;
                const float weight = p[size_t(j)] / sum * keep[size_t(j)];
                for (int64_t c = 0; c < D; c++) o[size_t(c)] += weight * float(v[c]);
              }
              for (int64_t c = 0; c < D; c++) out[(b * T + i) * width + h * D + c] = E(o[size_t(c)]);
              lse[bh * T + i] = max + std::log(sum);
            }
          }
        });
  });
}

void attention_backward(Tensor dqkv_, Tensor delta_, Tensor dout_, Tensor out_, Tensor lse_, Tensor qkv_,
                        const AttentionDims& dims, const Dropout& d) {
  with_compute_type(qkv_.dtype(), [&](auto tag) {
    using E = decltype(tag);
    E* dqkv = dqkv_.data<E>();
    float* delta = delta_.data<float>();
    const E *dout = dout_.data<E>(), *out = out_.data<E>(), *qkv = qkv_.data<E>();
    const float* lse = lse_.data<float>();
    const auto [B, T, H, D, first_head] = dims;
    const DropoutMask mask(d);
    const int64_t width = H * D;
    const float scale = 1.0f / std::sqrt(static_cast<float>(D));
    parallel_for(
        B * H, T * T * D, [=, B = B, T = T, H = H, D = D, first_head = first_head](int64_t begin, int64_t end) {
          std::vector<float> keep(static_cast<size_t>(T), 1.0f), grad(static_cast<size_t>(3 * T * D));
          float *dq = grad.data(), *dk = dq + T * D, *dv = dk + T * D;
          for (int64_t bh = begin; bh < end; bh++) {
            const int64_t b = bh / H, h = bh % H;
            const E* head = qkv + b * T * 3 * width + h * D;
            for (auto& g : grad) g = 0;
            for (int64_t i = 0; i < T; i++) {
              const E *q = head + i * 3 * width, *go = dout + (b * T + i) * width + h * D;
              const E* o = out + (b * T + i) * width + h * D;
              float dot = 0;
              for (int64_t c = 0; c < D; c++) dot += float(o[c]) * float(go[c]);
              delta[bh * T + i] = dot;
              if (d.active())
                mask.draw(keep.data(), uint64_t(d.first_row + b * T + i), uint64_t(first_head + h) << 32, 0, i + 1);
              for (int64_t j = 0; j <= i; j++) {
                const E *k = head + j * 3 * width + width, *v = k + width;
                float score = 0, dp = 0;
                for (int64_t c = 0; c < D; c++) {
                  score += float(q[c]) * float(k[c]);
                  dp += float(go[c]) * float(v[c]);
                }
                const float p = std::exp(score * scale - lse[bh * T + i]);
                const float ds = p * (dp * keep[size_t(j)] - dot) * scale;
                for (int64_t c = 0; c < D; c++) {
                  dq[i * D + c] += ds * float(k[c]);
                  dk[j * D + c] += ds * float(q[c]);
                  dv[j * D + c] += p * keep[size_t(j)] * float(go[c]);
                }
              }
            }
            for (int64_t i = 0; i < T; i++)
              for (int64_t part = 0; part < 3; part++)
                for (int64_t c = 0; c < D; c++)
                  dqkv[(b * T + i) * 3 * width + part * width + h * D + c] = E(grad[size_t((part * T + i) * D + c)]);
          }
        });
  });
}

}  // namespace megalith::cpu
