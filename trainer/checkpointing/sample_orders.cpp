#include "trainer/checkpointing/sample_orders.h"

#include <algorithm>
#include <set>

#include "kernels/system/check.h"
#include "kernels/system/counted.h"
#include "kernels/system/json.h"

namespace megalith {

namespace {

using Json = nlohmann::json;

Json to_json(const SourceBegin& begin) {
  return {{"key", begin.key}, {"epoch", begin.epoch}, {"taken", begin.taken}, {"rest", begin.rest}};
}

SourceBegin begin_from(const Json& json, size_t place) {
  if (!json.contains("begin")) return {.key = place};
  const Json& begin = json.at("begin");
  const auto count = [&](const char* key) { return whole_number(begin.at(key), 0); };
  return {.key = static_cast<uint64_t>(count("key")),
          .epoch = count("epoch"),
          .taken = count("taken"),
          .rest = count("rest")};
}

// Follows a source through the records that have it. Returns its course up to the beginning of the last one.
SourceCourse course_of(uint64_t key, const std::vector<OrderRecord>& records, const TokenStream& stream) {
  SourceCourse course(key);
  for (size_t r = 0; r < records.size(); r++) {
    const OrderRecord& record = records[r];
    for (size_t i = 0; i < record.sources.size(); i++) {
      if (record.order.begins()[i].key != key) continue;
      const SampleCut cut = record.cut_of(i);
      CHECK(cut.sequence_length >= 1 && cut.tokens <= stream.size() && cut.tokens > cut.sequence_length * !cut.masked,
            "an order of samples has {} of {} tokens in sequences of {}, which does not fit this data", cut.tokens,
            stream.size(), cut.sequence_length);
      course.cut(cut, &stream);
      if (r + 1 < records.size()) course.take(record.order.taken(i, records[r + 1].sample));
    }
  }
  return course;
}

// Completes the records of older checkpoints from other knowledge of the run.
void complete(std::vector<OrderRecord>& records, const Json& state) {
  if (records.empty()) return;
  const Json settings = state.value(Json::json_pointer("/course/settings"), Json::object());
  for (OrderRecord& record : records) {
    if (record.sequence_length == 0)
      record.sequence_length = std::strtoll(settings.value("batch.sequence_length", "0").c_str(), nullptr, 10);
    for (RunFingerprint::Source& source : record.sources)
      if (source.tokens == 0 && !settings.contains("data.pack") && record.sequence_length > 0)
        source.tokens = source.samples * record.sequence_length + source.left_out + 1;
  }
}

bool is_same(const RunFingerprint::Source& there, const RunFingerprint::Source& here, const TokenStream& stream) {
  if (there.tokens_hash.empty())
    return there.content == here.content && (there.tokens == 0 || there.tokens == here.tokens);
  if (there.masked != here.masked || there.tokens > here.tokens) return false;
  return there.tokens_hash == (there.tokens == here.tokens ? here.tokens_hash : hash_of_tokens(stream, there.tokens));
}

// Returns the keys of the sources: for each its earlier one, or a new one.
std::vector<uint64_t> keys_of(const std::vector<OrderRecord>& records, const RunFingerprint& here, const Loader& data) {
  uint64_t next = 0;
  for (const OrderRecord& record : records)
    for (const SourceBegin& begin : record.order.begins()) next = std::max(next, begin.key + 1);
  std::vector<std::optional<uint64_t>> found(here.sources.size());
  std::set<uint64_t> taken;
  const auto look = [&](bool by_name) {
    for (size_t i = 0; i < here.sources.size(); i++)
      for (size_t r = records.size(); r-- > 0 && !found[i];)
        for (size_t k = 0; k < records[r].sources.size() && !found[i]; k++) {
          const RunFingerprint::Source& there = records[r].sources[k];
          const uint64_t key = records[r].order.begins()[k].key;
          if (taken.contains(key) || (by_name && there.name != here.sources[i].name) ||
              !is_same(there, here.sources[i], data.streams()[i]))
            continue;
          found[i] = key;
          taken.insert(key);
        }
  };
  look(true);
  look(false);
  std::vector<uint64_t> keys;
  for (const std::optional<uint64_t>& key : found) keys.push_back(key ? *key : next++);
  return keys;
}

// Returns a record without the parts that may differ between two records of the same order, and without those that
// `other` lacks.
Json comparable(Json record, const Json& other) {
  for (const char* key : {"step", "sample"}) record.erase(key);
  const auto keep_common = [](Json& object, const Json& there) {
    for (const char* key : {"sequence_length", "pack", "content", "tokens", "masked", "tokens_hash"})
      if (!there.contains(key)) object.erase(key);
  };
  keep_common(record, other);
  for (size_t i = 0; i < record.at("sources").size(); i++) {
    Json& source = record.at("sources")[i];
    for (const char* key : {"name", "left_out", "begin"}) source.erase(key);
    if (i < other.at("sources").size()) keep_common(source, other.at("sources")[i]);
  }
  return record;
}

Json record_of(int64_t step, int64_t sample, const RunFingerprint& here, const Loader& data) {
  return {{"step", step},
          {"sample", sample},
          {"shuffle", data.order().shuffle()},
          {"seed", data.order().seed()},
          {"sequence_length", data.sequence_length()},
          {"pack", data.packs_examples()},
          {"sources", to_json(here.sources)}};
}

}  // namespace

SampleCut OrderRecord::cut_of(size_t source) const {
  return usual({.tokens = sources[source].tokens,
                .sequence_length = sequence_length,
                .masked = sources[source].masked,
                .pack = pack,
                .shuffle = order.shuffle(),
                .seed = order.seed()});
}

OrderRecord order_from(const Json& json) {
  OrderRecord record;
  std::vector<int64_t> sizes, shares;
  std::vector<SourceBegin> begins;
  for (const Json& source : json.at("sources")) {
    record.sources.push_back(source_from(source));
    shares.push_back(record.sources.back().share);
    sizes.push_back(record.sources.back().samples);
    begins.push_back(begin_from(source, begins.size()));
  }
  record.step = whole_number(json.at("step"));
  record.sample = whole_number(json.at("sample"));
  record.sequence_length = json.contains("sequence_length") ? whole_number(json.at("sequence_length")) : 0;
  record.pack = json.value("pack", true);
  record.counts_from_start =
      record.sample > 0 && std::ranges::none_of(json.at("sources"), [](const Json& s) { return s.contains("begin"); });
  record.order = SampleOrder(std::move(sizes), Blend(std::move(shares)), json.at("shuffle").get<bool>(),
                             static_cast<uint64_t>(whole_number(json.at("seed"))),
                             record.counts_from_start ? 0 : record.sample, std::move(begins));
  return record;
}

std::vector<OrderRecord> orders_from(const Json& orders) {
  std::vector<OrderRecord> records;
  for (const Json& order : orders) records.push_back(order_from(order));
  return records;
}

Json orders_with(const Json& state, int64_t step, int64_t sample, const RunFingerprint& here, const Loader& data) {
  Json orders = Json::array();
  if (state.is_object() && state.contains("orders")) orders = state.at("orders");
  Json now = record_of(step, sample, here, data);
  if (!orders.empty() && comparable(orders.back(), now) == comparable(now, orders.back())) return orders;
  std::vector<OrderRecord> records = orders_from(orders);
  complete(records, state);
  const std::vector<uint64_t> keys = keys_of(records, here, data);
  for (size_t i = 0; i < keys.size(); i++) now.at("sources")[i]["begin"] = to_json(SourceBegin{.key = keys[i]});
  records.push_back(order_from(now));
  for (size_t i = 0; i < keys.size(); i++)
    now.at("sources")[i]["begin"] = to_json(course_of(keys[i], records, data.streams()[i]).begin());
  orders.push_back(now);
  // Completed records are kept, so that the next resume finds them.
  for (size_t r = 0; r + 1 < records.size(); r++) {
    orders[r]["sequence_length"] = records[r].sequence_length;
    for (size_t i = 0; i < records[r].sources.size(); i++)
      orders[r].at("sources")[i]["tokens"] = records[r].sources[i].tokens;
  }
  return orders;
}

void follow(const Json& orders, Loader& data) {
  const std::vector<OrderRecord> records = orders_from(orders);
  const OrderRecord& last = records.back();
  if (last.sample == 0 || last.counts_from_start) return;
  CHECK(last.sources.size() == data.streams().size(), "an order of {} for {}", counted(last.sources.size(), "source"),
        counted(data.streams().size(), "source"));
  std::vector<SourceCourse> courses;
  for (size_t i = 0; i < data.streams().size(); i++) {
    courses.push_back(course_of(last.order.begins()[i].key, records, data.streams()[i]));
    CHECK(courses.back().begin() == last.order.begins()[i],
          "{}: its samples so far differ from those that the checkpoint records; restore the tokens that the run was "
          "trained on",
          data.streams()[i].path());
  }
  data.resume(last.sample, courses);
}

std::vector<std::string> describe_change(const Json& orders, const Loader& data) {
  const std::vector<OrderRecord> records = orders_from(orders);
  if (records.size() < 2) return {};
  const OrderRecord &last = records.back(), &before = records[records.size() - 2];
  std::vector<std::string> lines;
  std::set<uint64_t> keys;
  for (size_t i = 0; i < last.sources.size(); i++) {
    const SourceBegin& b = last.order.begins()[i];
    const std::string& name = last.sources[i].name;
    keys.insert(b.key);
    if (b.rest > 0)
      lines.push_back(fmt::format("{} continues in epoch {} with the {} of it that have not come yet: {} of {}", name,
                                  b.epoch, counted(tokens_in(*data.rest(i)), "token"), counted(b.rest, "sample"),
                                  data.sequence_length()));
    else if (b.taken == 0)
      lines.push_back(fmt::format("{} begins with epoch {}", name, b.epoch));
    else
      lines.push_back(fmt::format("{} continues in epoch {} after {} of its {}", name, b.epoch, b.taken,
                                  counted(data.order().sizes()[i], "sample")));
  }
  for (size_t i = 0; i < before.sources.size(); i++)
    if (!keys.contains(before.order.begins()[i].key))
      lines.push_back(
          fmt::format("{} is no longer read, after {:.3g} epochs of it; it continues there if it comes back",
                      before.sources[i].name, before.order.epochs(i, last.sample)));
  return lines;
}

int64_t tokens_of_samples(const Json& orders, int64_t samples, int64_t sequence_length) {
  int64_t tokens = 0;
  const std::vector<OrderRecord> records = orders_from(orders);
  for (size_t r = 0; r < records.size(); r++) {
    const int64_t end = r + 1 < records.size() ? std::min(samples, records[r + 1].sample) : samples;
    const int64_t length = records[r].sequence_length > 0 ? records[r].sequence_length : sequence_length;
    tokens += std::max<int64_t>(0, end - records[r].sample) * length;
  }
  return records.empty() ? samples * sequence_length : tokens;
}

}  // namespace megalith
