#include "data/tokenizers/text_frame.h"

#include "data/tokenizers/tokenizer_parts.h"
#include "kernels/system/check.h"
#include "kernels/system/json.h"

namespace megalith {

namespace {

using Json = nlohmann::json;

// Adds the tokens of a post-processor outside those already in the frame.
void add_frame(const Json& processor, const std::string& path, TextFrame& frame) {
  if (processor.is_null()) return;
  const std::string type = type_of_part(processor), what = "the post_processor " + type;
  const auto ids_in = [&](const Json& ids) {
    std::vector<int32_t> found;
    for (const Json& id : ids) {
      CHECK(id.is_number_integer(), "{}: {} adds the id {}", path, what, json_text(id));
      found.push_back(id.get<int32_t>());
    }
    return found;
  };
  if (type == "Sequence") {
    CHECK(json_member(processor, "processors").is_array(), "{}: {} has no list `processors`", path, what);
    for (const Json& inside : json_member(processor, "processors")) add_frame(inside, path, frame);
  } else if (type == "BertProcessing" || type == "RobertaProcessing") {
    const auto one = [&](const char* key) {
      const Json& pair = json_member(processor, key);
      CHECK(pair.is_array() && pair.size() == 2 && pair[1].is_number_integer(), "{}: {} has {} = {}", path, what, key,
            json_text(pair));
      return pair[1].get<int32_t>();
    };
    frame.beginning.insert(frame.beginning.begin(), one("cls"));
    frame.ending.push_back(one("sep"));
  } else if (type == "TemplateProcessing") {
    std::vector<int32_t> before, behind;
    int texts = 0;
    CHECK(json_member(processor, "single").is_array(), "{}: {} has no list `single`", path, what);
    for (const Json& part : json_member(processor, "single")) {
      if (const Json& special = json_member(part, "SpecialToken"); !special.is_null()) {
        const std::string name = text_member(special, "id", what, path);
        const Json& ids = json_member(json_member(json_member(processor, "special_tokens"), name.c_str()), "ids");
        CHECK(ids.is_array(), "{}: {} adds {}, but has no special_tokens of that name", path, what,
              json_text(Json(name)));
        const std::vector<int32_t> added = ids_in(ids);
        (texts == 0 ? before : behind).insert((texts == 0 ? before : behind).end(), added.begin(), added.end());
        continue;
      }
      CHECK(json_member(json_member(part, "Sequence"), "id") == "A", "{}: {} has in `single` {}", path, what,
            json_text(part));
      texts++;
    }
    CHECK(texts == 1, "{}: {} has in `single` the text {} times", path, what, texts);
    frame.beginning.insert(frame.beginning.begin(), before.begin(), before.end());
    frame.ending.insert(frame.ending.end(), behind.begin(), behind.end());
  } else if (type != "ByteLevel") {  // ByteLevel changes offsets only
    FAIL(
        "{}: the post_processor has type = {}; supported are TemplateProcessing, BertProcessing, RobertaProcessing, "
        "ByteLevel and Sequence",
        path, json_text(json_member(processor, "type")));
  }
}

}  // namespace

TextFrame read_text_frame(const Json& processor, const std::string& path) {
  TextFrame frame;
  add_frame(processor, path, frame);
  return frame;
}

}  // namespace megalith
