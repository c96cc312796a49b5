// One row per op at the shapes of models: on the CPU those of GPT-2 124M (4 x 256 tokens) and of the small CPU recipe
// (4 layers of 128, T 64, B 12, V 65), on a GPU those of GPT-2 124M (16 x 1024) and 1558M (8 x 1024); in f32 and bf16.
// Then attention at other head sizes and lengths, on the CPU in f32, compared with the products of a head by GEMM,
// and on a GPU in bf16.
//
// Rates come from the cost that the op states at its launch. The limits are measured in the same run: products of large
// matrices in the same dtype, on the CPU multiply-adds by themselves if these are faster, and a large copy (on a GPU
// the driver's own), counted as bytes read and written. They give each row two floors, operations over rate and bytes
// over bandwidth; `of limit` is the larger floor over the time. Ops other than products are compared with the plain
// units' rate, that of the product in f32. On the CPU data that stays in cache can exceed 1.
//
//   bench_kernels [--device cpu|cuda] [--filter REGEX] [--after ROW] [--seconds 0.2] [--json FILE] [--generation 8]
//                 [--describe] [--list]
//
// A kernel that faults, or hangs and is killed, ends the process: --after continues behind the row that the file then
// names as `running`. On a Hopper, `--filter attention --generation 8` measures attention with older GPUs' warp
// products.
//
//   bench_kernels --tune CONFIG... [--set SECTION.KEY=VALUE...] [--ranks N] [--candidates 8] [--seconds 0.05] [--json
//   FILE]
//
// times the GEMM library's kernels for each config's products instead, and writes a table of the fastest
// (kernels/linear/gemm_tables/README.md).
#include <CLI/CLI.hpp>
#include <algorithm>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <regex>

#include "bench/kernel_rows.h"
#include "bench/limits.h"
#include "bench/tune.h"
#include "kernels/system/counted.h"
#include "kernels/system/json.h"

using namespace megalith;
using namespace megalith::bench;

namespace {

constexpr DType f32 = DType::f32, bf16 = DType::bf16;

std::vector<Row> rows_for(World world) {
  std::vector<Model> models{{"124M", 4, 256, 768, 12, 50257, 50304, 16 << 20},
                            {"small", 12, 64, 128, 4, 65, 72, 800 << 10}};
  if (world == World::cuda)
    models = {{"124M", 16, 1024, 768, 12, 50257, 50304, 124 << 20},
              {"1558M", 8, 1024, 1600, 25, 50257, 50304, 400 << 20}};
  std::vector<Row> all;
  const auto add = [&](std::vector<Row> some) { std::move(some.begin(), some.end(), std::back_inserter(all)); };
  // The types of training come first: there may not be time for all rows.
  for (const Model& m : models) add(rows_of(m, bf16));
  if (world == World::cuda) add(attention_rows());
  for (const Model& m : models) add(rows_of_choices(m, bf16));
  if (world == World::cuda) add(fp8_rows());
  for (const Model& m : models) add(rows_of(m, f32));
  for (const Model& m : models) add(rows_of_choices(m, f32));
  if (world == World::cpu) add(attention_rows_of_cpu(f32));
  return all;
}

struct Measured {
  const Row& row;
  Timing timing;
  Cost cost;
  double floor_operations = 0, floor_bytes = 0;  // seconds
  double of_limit() const { return std::max(floor_operations, floor_bytes) / timing.seconds; }

  nlohmann::ordered_json json() const {
    return {{"op", row.op},
            {"shape", row.shape},
            {"dtype", name_of(row.dtype)},
            {"seconds", timing.seconds},
            {"fastest", timing.fastest},
            {"flops", cost.flops},
            {"bytes", cost.bytes},
            {"floor_operations", floor_operations},
            {"floor_bytes", floor_bytes},
            {"of_limit", of_limit()}};
  }
};

Measured measure(Desk& desk, const Row& row, const Limits& limits, double seconds) {
  const auto scope = desk.arena.scope();
  std::vector<std::function<void()>> sets;
  const int64_t before = desk.arena.used();
  do {
    sets.push_back(row.setup(desk));
  } while (desk.arena.used() - before < desk.cold_bytes());
  desk.stream.clear_log();
  sets[0]();
  Measured m{.row = row, .timing = {}, .cost = {}};
  for (const OpRecord& op : desk.stream.log()) {
    m.cost.flops += op.flops;
    m.cost.bytes += op.bytes;
  }
  m.timing = desk.time(sets, seconds);
  m.floor_operations = limits.floor_operations(m.cost, row.op, row.dtype);
  m.floor_bytes = limits.floor_bytes(m.cost);
  return m;
}

std::vector<Row> wanted_rows(World world, const std::string& filter, const std::string& after) {
  std::vector<Row> rows = rows_for(world);
  if (!after.empty()) {
    const auto last = std::find_if(rows.begin(), rows.end(), [&](const Row& row) { return row.name() == after; });
    CHECK(last != rows.end(), "unknown row '{}'; --list prints the names", after);
    rows.erase(rows.begin(), last + 1);
  }
  std::erase_if(rows, [wanted = std::regex(filter)](const Row& row) { return !std::regex_search(row.name(), wanted); });
  return rows;
}

void run(World world, const std::vector<Row>& rows, double seconds, const std::string& json, int generation) {
  // On a GPU the largest row asks for 10 GiB; a smaller card does without such rows.
  const int64_t room =
      world == World::cuda ? std::min(device::properties().free * 9 / 10, int64_t{12} << 30) : int64_t{3} << 30;
  Desk desk(world, room, generation);
  const Limits limits(desk);
  fmt::print("{}\n{}\n", describe(world), limits.summary());
  fmt::print("{:32} {:18} {:5} {:>11} {:>9} {:>9} {:>11} {:>11} {:>9}\n", "op", "shape", "dtype", "us", "GB/s",
             "TFLOP/s", "floor ops", "floor bytes", "of limit");
  nlohmann::ordered_json results{{"device", parse_json(describe(world))},
                                 {"limits",
                                  {{"bf16_flops", limits.operations.at(bf16)},
                                   {"f32_flops", limits.operations.at(f32)},
                                   {"copy_bytes", limits.bytes}}},
                                 {"rows", nlohmann::ordered_json::array()},
                                 {"left_out", nlohmann::ordered_json::array()}};
  const auto write = [&] {  // after each row, so that what ends it early leaves the others
    if (json.empty()) return;
    std::ofstream(json + ".part") << json_text(results, 1) << "\n";
    std::filesystem::rename(json + ".part", json);
  };
  for (const Row& row : rows) {
    results["running"] = row.name();
    write();
    try {
      const Measured m = measure(desk, row, limits, seconds);
      fmt::print("{:32} {:18} {:5} {:11.1f} {:9.1f} {:9.3f} {:11.1f} {:11.1f} {:9.3f}\n", row.op, row.shape,
                 name_of(row.dtype), 1e6 * m.timing.seconds, m.cost.bytes / m.timing.seconds / 1e9,
                 m.cost.flops / m.timing.seconds / 1e12, 1e6 * m.floor_operations, 1e6 * m.floor_bytes, m.of_limit());
      std::fflush(stdout);
      results["rows"].push_back(m.json());
    } catch (const Error& error) {
      fmt::print("{:32} {:18} {:5} left out: {}\n", row.op, row.shape, name_of(row.dtype), error.what());
      results["left_out"].push_back({{"row", row.name()}, {"why", error.what()}});
      write();
      if (world == World::cuda) device::properties();  // which fails where the fault stays
    }
  }
  results.erase("running");
  write();
}

struct Tuning {
  std::vector<std::string> configs, overrides;
  int ranks = 0, candidates = 8;
};

// Microseconds in a step: how often a shape comes in one counts.
void tune(const Tuning& asked, double seconds, const std::string& json) {
  GemmCounts products;
  for (const std::string& config : asked.configs)
    for (const auto& [shape, count] : products_of(config, asked.overrides, asked.ranks))
      products[shape] = std::max(products[shape], count);
  Desk desk(World::cuda, std::min(device::properties().free * 9 / 10, int64_t{24} << 30));
  Tuner tuner(
      desk.stream, desk.arena, [&](const Tuner::Works& works) { return desk.time(works, seconds).seconds; },
      desk.cold_bytes(), asked.candidates);
  const device::Properties gpu = device::properties();
  char date[32];
  const std::time_t now = std::time(nullptr);
  std::strftime(date, sizeof date, "%Y-%m-%d", std::gmtime(&now));
  GemmTable table{.gpu = gpu.name,
                  .library = desk.stream.queue().gemm->version(),
                  .driver = gpu.driver,
                  .date = date,
                  .choices = {}};
  const auto write = [&] {  // after each, so that what ends it early leaves the others
    if (json.empty()) return;
    std::ofstream(json + ".part") << to_text(table);
    std::filesystem::rename(json + ".part", json);
  };
  fmt::print("{}, cuBLASLt {}: {} of {} configs\n{:>7} {:>7} {:>7} {:5} {:>6} {:>9} {:>9} {:>6}  {}\n", gpu.name,
             gemm_library_version(table.library), counted(products.size(), "shape"), asked.configs.size(), "M", "N",
             "K", "input", "a step", "first us", "tuned us", "saves", "by");
  double first = 0, tuned = 0;
  for (const auto& [shape, count] : products) {
    TunedProduct product{.shape = shape, .choices = {}, .why = ""};
    try {
      product = tuner.tune(shape);
    } catch (const Error& error) {
      product.why = error.what();
    }
    fmt::print("{:7} {:7} {:7} {:5} {:6} {:9.1f} {:9.1f} {:5.1f}%  {}\n", shape.M, shape.N, shape.K,
               name_of(shape.input), count, 1e6 * product.first, 1e6 * product.tuned,
               product.first > 0 ? 100 * (1 - product.tuned / product.first) : 0.,
               product.choices.empty() ? "left out: " + product.why : product.choices.back().what);
    std::fflush(stdout);
    first += static_cast<double>(count) * product.first;
    tuned += static_cast<double>(count) * product.tuned;
    for (const GemmChoice& choice : product.choices)
      if (std::none_of(table.choices.begin(), table.choices.end(),
                       [&](const GemmChoice& other) { return other.shape == choice.shape; }))
        table.choices.push_back(choice);
    write();
  }
  write();
  fmt::print("products of a step of each: {:.3f} ms by the library's first choices, {:.3f} ms tuned\n", 1e3 * first,
             1e3 * tuned);
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App cli("Times each op at the shapes of models, relative to the limits of the machine.");
  std::string on = "cpu", filter = ".", after, json;
  double seconds = 0.2;
  int generation = 0;
  bool only_describe = false, only_list = false;
  Tuning tuning;
  cli.add_option("--device", on)->check(CLI::IsMember({"cpu", "cuda"}))->capture_default_str();
  cli.add_option("--filter", filter, "regular expression over op/shape/dtype");
  cli.add_option("--after", after, "name of a row: only the rows after it");
  cli.add_option("--seconds", seconds, "for each row, about")->check(CLI::PositiveNumber)->capture_default_str();
  cli.add_option("--json", json, "file for the rows");
  cli.add_option("--generation", generation, "of the GPU's kernels; 0: its own")->check(CLI::Range(0, 12));
  auto* const tuned = cli.add_option("--tune", tuning.configs, "configs whose products are timed");
  cli.add_option("--set", tuning.overrides, "options of these configs")->needs(tuned);
  cli.add_option("--ranks", tuning.ranks, "of these configs; default: all devices of their [hardware], or 1")
      ->check(CLI::PositiveNumber)
      ->needs(tuned);
  cli.add_option("--candidates", tuning.candidates, "kernels of the library for a product, at most")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str()
      ->needs(tuned);
  cli.add_flag("--describe", only_describe, "only print the device, as JSON");
  cli.add_flag("--list", only_list, "only print the rows' names, for which no device is needed");
  CLI11_PARSE(cli, argc, argv);
  try {
    const World world = on == "cuda" || !tuning.configs.empty() ? World::cuda : World::cpu;
    if (only_list) {
      for (const Row& row : wanted_rows(world, filter, after)) fmt::print("{}\n", row.name());
      return 0;
    }
    if (world == World::cuda) select_gpu();
    if (only_describe) {
      fmt::print("{}\n", describe(world));
    } else if (!tuning.configs.empty()) {
      tune(tuning, seconds, json);
    } else {
      run(world, wanted_rows(world, filter, after), seconds, json, generation);
    }
  } catch (const std::exception& error) {
    fmt::print(stderr, "bench_kernels: {}\n", error.what());
    return 1;
  }
}
