#include "kernels/linear/gemm_table.h"

#include <nlohmann/json.hpp>

#include "kernels/system/check.h"
#include "kernels/system/json.h"

namespace megalith {

namespace {

using nlohmann::json;
using nlohmann::ordered_json;

constexpr int64_t format = 1;

constexpr std::pair<const char*, bool GemmShape::*> flags[] = {{"a_transposed", &GemmShape::a_transposed},
                                                               {"b_transposed", &GemmShape::b_transposed},
                                                               {"accumulate", &GemmShape::accumulate},
                                                               {"bias", &GemmShape::bias},
                                                               {"gelu", &GemmShape::gelu},
                                                               {"bias_gradient", &GemmShape::bias_gradient}};

DType type_of(const json& word) {
  for (DType t : {DType::f32, DType::bf16, DType::f16, DType::e4m3, DType::e5m2})
    if (word.get_ref<const std::string&>() == name_of(t)) return t;
  FAIL("unknown type \"{}\" of a product (expected f32, bf16, f16, e4m3 or e5m2)", word.get<std::string>());
}

// Lists the attributes that are set, so that a line stays short.
ordered_json to_json(const GemmChoice& c) {
  ordered_json is = ordered_json::array(), words = ordered_json::array();
  for (const auto& [name, flag] : flags)
    if (c.shape.*flag) is.push_back(name);
  for (uint64_t word : c.algorithm) words.push_back(fmt::format("{:x}", word));
  return {{"MNK", {c.shape.M, c.shape.N, c.shape.K}},
          {"is", is},
          {"input", name_of(c.shape.input)},
          {"output", name_of(c.shape.output)},
          {"alignment", c.shape.alignment},
          {"algorithm", words},
          {"workspace", c.workspace},
          {"seconds", c.seconds},
          {"first_seconds", c.first_seconds},
          {"candidates", c.candidates},
          {"what", c.what}};
}

GemmChoice choice_of(const json& line) {
  GemmChoice c;
  const json& sizes = as_list(line.at("MNK"));
  CHECK(sizes.size() == 3, "MNK has {} numbers, not 3", sizes.size());
  c.shape.M = whole_number(sizes[0], 1);
  c.shape.N = whole_number(sizes[1], 1);
  c.shape.K = whole_number(sizes[2], 1);
  for (const json& word : as_list(line.at("is"))) {
    bool known = false;
    for (const auto& [name, flag] : flags)
      if (word.get_ref<const std::string&>() == name) known = c.shape.*flag = true;
    CHECK(known, "unknown attribute \"{}\" of a product", word.get<std::string>());
  }
  c.shape.input = type_of(line.at("input"));
  c.shape.output = type_of(line.at("output"));
  c.shape.alignment = whole_number(line.at("alignment"), 1, GemmShape::most_alignment);
  const json& words = as_list(line.at("algorithm"));
  CHECK(words.size() == c.algorithm.size(), "an algorithm has {} words, not {}", words.size(), c.algorithm.size());
  for (size_t i = 0; i < words.size(); i++) {
    const std::string& word = words[i].get_ref<const std::string&>();
    size_t read = 0;
    const bool hex = !word.empty() && word.size() <= 16 && word.find_first_not_of("0123456789abcdef") == word.npos;
    if (hex) c.algorithm[i] = std::stoull(word, &read, 16);
    CHECK(hex, "\"{}\" is not a 64-bit hexadecimal number", word);
  }
  c.workspace = whole_number(line.at("workspace"), 0);
  c.seconds = real_number(line.at("seconds"), 0);
  c.first_seconds = real_number(line.at("first_seconds"), 0);
  c.candidates = whole_number(line.at("candidates"), 1);
  c.what = line.at("what").get<std::string>();
  return c;
}

}  // namespace

std::string gemm_library_version(int64_t number) {
  return fmt::format("{}.{}.{}", number / 10000, number / 100 % 100, number % 100);
}

std::string to_text(const GemmTable& table) {
  std::string text =
      fmt::format("{{\"format\": {}, \"gpu\": {}, \"cublaslt\": {}, \"driver\": {}, \"date\": {}, \"choices\": [",
                  format, json_text(ordered_json(table.gpu)), table.library, json_text(ordered_json(table.driver)),
                  json_text(ordered_json(table.date)));
  for (const GemmChoice& c : table.choices) text += (&c == table.choices.data() ? "\n" : ",\n") + json_text(to_json(c));
  return text + "\n]}\n";
}

GemmTable read_gemm_table(const std::string& text, const std::string& name) {
  try {
    const json whole = parse_json(text);
    as_object(whole);
    const int64_t is = whole_number(whole.at("format"));
    CHECK(is == format, "unsupported format {} (expected {})", is, format);
    GemmTable table{.gpu = whole.at("gpu").get<std::string>(),
                    .library = whole_number(whole.at("cublaslt"), 1),
                    .driver = whole.at("driver").get<std::string>(),
                    .date = whole.at("date").get<std::string>(),
                    .choices = {}};
    for (const json& line : as_list(whole.at("choices"))) {
      const GemmChoice choice = choice_of(line);
      for (const GemmChoice& other : table.choices)
        CHECK(!(other.shape == choice.shape), "two choices for one product of {} x {} x {}", choice.shape.M,
              choice.shape.N, choice.shape.K);
      table.choices.push_back(choice);
    }
    return table;
  } catch (const json::exception& error) {
    FAIL("{} is not a table of GEMM choices: {}; make one with bench_kernels --tune", name, error.what());
  } catch (const Error& error) {
    FAIL("{} is not a table of GEMM choices: {}; make one with bench_kernels --tune", name, error.what());
  }
}

}  // namespace megalith
