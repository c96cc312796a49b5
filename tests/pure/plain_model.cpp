#include "tests/pure/plain_model.h"

#include <cmath>
#include <numbers>

#include "kernels/elementwise/philox.h"

namespace megalith {

namespace {

using Row = PlainModel::Row;
using Rows = std::vector<Row>;

Row norm(const Row& x, const Row& w, const Row* b, const ModelConfig& model) {
  const auto C = static_cast<double>(x.size());
  double mean = 0, variance = 0;
  if (model.norm == NormKind::layer)
    for (double v : x) mean += v / C;
  for (double v : x) variance += (v - mean) * (v - mean) / C;
  Row y(x.size());
  for (size_t c = 0; c < x.size(); c++)
    y[c] = (x[c] - mean) / std::sqrt(variance + model.norm_epsilon) * w[c] + (b ? (*b)[c] : 0);
  return y;
}

Row linear(const Row& x, const Row& w, const Row* b) {
  Row y = b ? *b : Row(w.size() / x.size(), 0);
  for (size_t o = 0; o < y.size(); o++)
    for (size_t i = 0; i < x.size(); i++) y[o] += w[o * x.size() + i] * x[i];
  return y;
}

double gelu(double x) { return x / 2 * (1 + std::tanh(std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x))); }

Row activation(const Row& x, Activation kind) {
  Row y(kind == Activation::swiglu ? x.size() / 2 : x.size());
  for (size_t i = 0; i < y.size(); i++) switch (kind) {
      case Activation::gelu: y[i] = gelu(x[i]); break;
      case Activation::gelu_erf: y[i] = x[i] / 2 * (1 + std::erf(x[i] / std::sqrt(2.0))); break;
      case Activation::swiglu: y[i] = x[i] / (1 + std::exp(-x[i])) * x[y.size() + i];
    }
  return y;
}

// 0 or 1 / (1 - p), as kernels/elementwise/dropout.h defines the mask.
double kept(Dropout d, int site, int64_t row, int64_t high, int64_t column) {
  if (!d.active()) return 1;
  d.site = site;
  const auto block =
      philox(dropout_key(d), static_cast<uint64_t>(d.first_row + row),
             (static_cast<uint64_t>(high) << 32) + static_cast<uint64_t>(16 * (column / 64) + column % 16));
  return block[static_cast<size_t>(column % 64 / 16)] < dropout_threshold(d) ? 0 : 1 / (1 - d.p);
}

// Turns the pairs of one head's features, from `at` on.
void turn(Row& row, size_t at, size_t position, const ModelConfig& m) {
  const auto pairs = static_cast<size_t>(m.rotary_pairs());
  for (size_t i = 0; i < pairs; i++) {
    double frequency = std::pow(m.rotary_base, -2.0 * static_cast<double>(i) / (2.0 * static_cast<double>(pairs)));
    const double wave = 2 * std::numbers::pi / frequency, context = static_cast<double>(m.rotary_context);
    if (wave > context / m.rotary_low) {
      frequency /= m.rotary_factor;
    } else if (wave >= context / m.rotary_high) {
      const double kept = (context / wave - m.rotary_low) / (m.rotary_high - m.rotary_low);
      frequency = (1 - kept) * frequency / m.rotary_factor + kept * frequency;
    }
    const double angle = static_cast<double>(position) * frequency, x = row[at + i], y = row[at + pairs + i];
    row[at + i] = x * std::cos(angle) - y * std::sin(angle);
    row[at + pairs + i] = y * std::cos(angle) + x * std::sin(angle);
  }
}

void norm_head(Row& row, size_t at, const Row& w, const ModelConfig& m) {
  double squares = 0;
  for (size_t i = 0; i < w.size(); i++) squares += row[at + i] * row[at + i] / static_cast<double>(w.size());
  for (size_t i = 0; i < w.size(); i++) row[at + i] *= w[i] / std::sqrt(squares + m.norm_epsilon);
}

// The weights of the norms of q and k may be null.
Rows attention(Rows qkv, const Row* q_norm, const Row* k_norm, const ModelConfig& m, const Dropout& d, int site) {
  const auto H = static_cast<size_t>(m.heads), K = static_cast<size_t>(m.kv_heads());
  const auto D = static_cast<size_t>(m.size_of_head());
  const size_t T = qkv.size();
  for (size_t t = 0; t < T && q_norm; t++)
    for (size_t h = 0; h < H + K; h++) norm_head(qkv[t], h * D, h < H ? *q_norm : *k_norm, m);
  for (size_t t = 0; t < T && m.positions == Positions::rotary; t++)
    for (size_t h = 0; h < H + K; h++) turn(qkv[t], h * D, t, m);
  Rows out(T, Row(H * D, 0));
  for (size_t h = 0; h < H; h++)
    for (size_t i = 0; i < T; i++) {
      const size_t key = (H + h / (H / K)) * D, value = key + K * D;
      Row p(i + 1);
      double sum = 0;
      for (size_t j = 0; j <= i; j++) {
        double score = 0;
        for (size_t k = 0; k < D; k++) score += qkv[i][h * D + k] * qkv[j][key + k];
        sum += p[j] = std::exp(score / std::sqrt(static_cast<double>(D)));
      }
      for (size_t j = 0; j <= i; j++)
        for (size_t k = 0; k < D; k++)
          out[i][h * D + k] +=
              p[j] / sum * kept(d, site, static_cast<int64_t>(i), static_cast<int64_t>(h), static_cast<int64_t>(j)) *
              qkv[j][value + k];
    }
  return out;
}

}  // namespace

std::vector<Row> PlainModel::logits(const std::vector<int32_t>& tokens, const Dropout& d) const {
  const auto C = static_cast<size_t>(model.hidden), T = tokens.size();
  const auto w = [&](const std::string& name) -> const Row& { return weights.at(name); };
  const auto find = [&](const std::string& name) {
    const auto found = weights.find(name);
    return found == weights.end() ? nullptr : &found->second;
  };
  const auto add_dropped = [&](Rows& x, size_t t, const Row& h, int site) {
    for (size_t c = 0; c < C; c++) x[t][c] += h[c] * kept(d, site, static_cast<int64_t>(t), 0, static_cast<int64_t>(c));
  };

  Rows x(T, Row(C, 0));
  for (size_t t = 0; t < T; t++) {
    Row e(C);
    for (size_t c = 0; c < C; c++)
      e[c] = w("wte.weight")[static_cast<size_t>(tokens[t]) * C + c] +
             (model.positions == Positions::learned ? w("wpe.weight")[t * C + c] : 0);
    add_dropped(x, t, e, 0);
  }
  const auto of_norm = [&](const Row& row, const std::string& name) {
    return norm(row, w(name + ".weight"), find(name + ".bias"), model);
  };
  const auto of_linear = [&](const Row& row, const std::string& name) {
    return linear(row, w(name + ".weight"), find(name + ".bias"));
  };
  for (int64_t layer = 0; layer < model.layers; layer++) {
    const std::string k = fmt::format("h.{}.", layer);
    const int site = static_cast<int>(1 + 3 * layer);
    Rows qkv;
    for (const Row& row : x) qkv.push_back(of_linear(of_norm(row, k + "ln_1"), k + "attn.c_attn"));
    const Rows att = attention(qkv, find(k + "attn.q_norm.weight"), find(k + "attn.k_norm.weight"), model, d, site),
               before = x;
    for (size_t t = 0; t < T; t++) add_dropped(x, t, of_linear(att[t], k + "attn.c_proj"), site + 1);
    for (size_t t = 0; t < T; t++) {
      const Row f = activation(
          of_linear(of_norm((model.parallel_residual ? before : x)[t], k + "ln_2"), k + "mlp.c_fc"), model.activation);
      add_dropped(x, t, of_linear(f, k + "mlp.c_proj"), site + 2);
    }
  }
  const std::string head = model.tied_head ? "wte.weight" : "lm_head.weight";
  Rows z;
  for (const Row& row : x) z.push_back(linear(of_norm(row, "ln_f"), w(head), nullptr));
  return z;
}

double PlainModel::loss(const std::vector<std::vector<int32_t>>& sequences, const Dropout& dropout) const {
  double sum = 0, count = 0;
  for (size_t i = 0; i < sequences.size(); i++) {
    const std::vector<int32_t> inputs(sequences[i].begin(), sequences[i].end() - 1);
    Dropout d = dropout;
    d.first_row += static_cast<int64_t>(i * inputs.size());
    const Rows z = logits(inputs, d);
    for (size_t t = 0; t < inputs.size(); t++, count++) {
      double exponentials = 0;
      for (double v : z[t]) exponentials += std::exp(v);
      sum += std::log(exponentials) - z[t][static_cast<size_t>(sequences[i][t + 1])];
    }
  }
  return sum / count;
}

}  // namespace megalith
