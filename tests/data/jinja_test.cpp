// Templates in Jinja: what the language does, which transformers does too, and what is refused; and templates of a
// conversation, which are recognised by what they render.
#include "data/conversations/jinja.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "data/conversations/chat_template_jinja.h"
#include "kernels/system/json.h"
#include "tests/data/scratch.h"
#include "tests/python.h"

namespace megalith {
namespace {

using Ordered = nlohmann::ordered_json;
using test::Scratch;
using Messages = std::vector<ChatMessage>;

const Ordered& variables() {
  static const Ordered all = Ordered::parse(R"({"a": 3, "t": " Text é\n", "list": [1, "b", null, true], "empty": [],
      "map": {"k": "v", "n": [1, 2]}, "messages": [{"role": "user", "content": "q", "n": 1},
      {"role": "assistant", "content": "a", "n": 2}, {"role": "user", "content": "r", "n": 3}], "no": false})");
  return all;
}

// A template, and what it renders.
const std::vector<std::pair<std::string, std::string>>& rows() {
  static const std::vector<std::pair<std::string, std::string>> all{
      {"{{ a }}|{{ 2 * a + 1 }}|{{ 7 // 2 }}|{{ -7 % 3 }}|{{ 2 ** 3 }}|{{ 7 / 2 }}", "3|7|3|2|8|3.5"},
      {"{{ a == 3 and not no }}|{{ absent is defined }}|{{ none }}|{{ absent }}|", "True|False|None||"},
      {"{{ 'x' if no else 'y' }}|{{ 'x' if no }}|{{ a > 2 and a <= 3 }}|{{ a or 'z' }}|{{ no or 'z' }}", "y||True|3|z"},
      {"{{ t | trim }}|{{ t.strip() }}|{{ t.lstrip() }}|{{ t | length }}|{{ t | upper }}|",
       "Text é|Text é|Text é\n|8| TEXT É\n|"},
      {"{{ 'a,b,,c'.split(',') | join('-') }}|{{ ' a  b '.split() | join('-') }}|{{ 'xxaxx'.strip('x') }}",
       "a-b--c|a-b|a"},
      {"{{ 'abc'[1] }}{{ 'abc'[-1] }}{{ 'abcd'[1:3] }}{{ 'abc'[::-1] }}{{ list[1:] | length }}{{ list[:-1] | length }}",
       "bcbccba33"},
      {"{{ list | tojson }}|{{ map | tojson }}|{{ 'é\"' | tojson }}|{{ map.k }}{{ map['k'] }}{{ map.get('z', 'd') }}",
       "[1, \"b\", null, true]|{\"k\": \"v\", \"n\": [1, 2]}|\"é\\\"\"|vvd"},
      {"{{ map | tojson(indent=2) }}", "{\n  \"k\": \"v\",\n  \"n\": [\n    1,\n    2\n  ]\n}"},
      {"{% for m in messages %}{{ loop.index }}{{ loop.index0 }}{{ loop.first }}{{ loop.last }}{{ m.role }};{% endfor "
       "%}",
       "10TrueFalseuser;21FalseFalseassistant;32FalseTrueuser;"},
      {"{% for m in messages if m.role == 'user' %}{{ m['content'] }}{{ loop.length }}{% else %}none{% endfor %}"
       "{% for m in empty %}x{% else %}none{% endfor %}",
       "q2r2none"},
      {"{% for k, v in map.items() %}{{ k }}={{ v | tojson }} {% endfor %}{% for k, v in map | items %}{{ k }}{% "
       "endfor %}",
       "k=\"v\" n=[1, 2] kn"},
      {"{% for i in range(2, 8, 2) %}{% if i == 6 %}{% break %}{% endif %}{% if i == 2 %}{% continue %}{% endif %}{{ i "
       "}}{% endfor %}",
       "4"},
      {"{% set x = 1 %}{% for i in [5] %}{% set x = i %}{% endfor %}{{ x }}{% if true %}{% set x = 7 %}{% endif %}{{ x "
       "}}",
       "17"},
      {"{% set ns = namespace(n=0, found=false) %}{% for m in messages %}{% set ns.n = ns.n + m.n %}{% endfor %}{{ "
       "ns.n }}{{ ns.found }}",
       "6False"},
      {"{% set block %}a{{ a }}{% endset %}[{{ block }}]", "[a3]"},
      {"{% macro m(x, y='d') %}<{{ x }}{{ y }}>{% endmacro %}{{ m(1) }}{{ m('a', y='b') }}", "<1d><ab>"},
      {"{{ 'q' in 'aqb' }}{{ 'k' in map }}{{ 2 in [1, 2] }}{{ 3 not in [1, 2] }}{{ 'a' ~ 1 ~ none }}",
       "TrueTrueTrueTruea1None"},
      {"{{ list is iterable }}{{ t is string }}{{ map is mapping }}{{ none is none }}{{ t is not none }}{{ a is number "
       "}}{{ true is true }}{{ 4 is divisibleby 2 }}",
       "TrueTrueTrueTrueTrueTrueTrueTrue"},
      {"{{ messages | selectattr('role', 'equalto', 'user') | list | length }}{{ messages | map(attribute='content') | "
       "join }}"
       "{{ (messages | first).content }}{{ (messages | last)['content'] }}{{ messages[-1].content }}",
       "2qarqrr"},
      {"{{ absent | default('d') }}{{ '' | default('e', true) }}{{ 'ab' | replace('a', 'c') }}{{ 'x y' | capitalize "
       "}}{{ '7' | int + 1 }}",
       "decbX y8"},
      {"{{ 'ab'.startswith('a') }}{{ 'ab'.endswith(('x', 'b')) }}{{ 'a-b'.find('-') }}{{ 'aaa'.replace('a', 'b', 2) }}",
       "TrueTrue1bba"},
      {"a\n{% if true %}\nb\n{% endif %}\nc\n", "a\nb\nc"},
      {"a\n   {% if true %}\n  b\n   {% endif %}\nc", "a\n  b\nc"},
      {"a \n {%- if true -%} \n b \n {%- endif %} c {# note #}\nd {#- note -#} e", "ab c de"},
      {"  {{- a -}}  x {{ '{{' }} {{ \"%}\" }}{% set s = 'a\\n\\'\\\\' %}{{ s }}", "3x {{ %}a\n'\\"},
      {"{%- for m in messages %}\n    {%- if loop.first %}\n        {{- 'F' }}\n    {%- endif %}\n    {{- m.content "
       "}}\n{%- endfor %}\n",
       "Fqar"},
      {"{{ true + 1 }}|{{ 2 * no }}|{{ 'abc'[true] }}", "2|0|b"},
      {"{% generation %}g{{ a }}{% endgeneration %}", "g3"}};
  return all;
}

// Of each case its text, or nothing where it is refused.
std::vector<std::optional<std::string>> in_python(const std::string& python, const Scratch& scratch,
                                                  const std::vector<Ordered>& cases) {
  std::string lines;
  for (const Ordered& c : cases) lines += json_text(c) + "\n";
  const std::string in = scratch.write("cases", lines), out = scratch.path("texts");
  const std::string command = fmt::format("'{}' '{}' <'{}' >'{}' 2>/dev/null", python,
                                          MEGALITH_SOURCE_DIR "/tests/data/jinja_agrees.py", in, out);
  EXPECT_EQ(std::system(command.c_str()), 0);
  std::vector<std::optional<std::string>> texts;
  std::ifstream file(out);
  for (std::string line; std::getline(file, line);) {
    const Ordered text = Ordered::parse(line);
    texts.push_back(text.is_null() ? std::nullopt : std::optional(text.get<std::string>()));
  }
  return texts;
}

TEST(Jinja, RendersAsItSays) {
  for (const auto& [text, expected] : rows()) {
    SCOPED_TRACE(text);
    std::string rendered;
    EXPECT_NO_THROW(rendered = JinjaTemplate(text).render(variables()));
    EXPECT_EQ(rendered, expected);
  }
}

TEST(Jinja, RendersAsTransformersDoes) {
  const std::string python = python_with("jinja2");
  if (python.empty()) GTEST_SKIP() << "MEGALITH_PYTHON does not name a Python with jinja2";
  const Scratch scratch;
  std::vector<Ordered> cases;
  for (const auto& [text, expected] : rows()) cases.push_back({{"template", text}, {"variables", variables()}});
  const auto texts = in_python(python, scratch, cases);
  ASSERT_EQ(texts.size(), rows().size());
  for (size_t i = 0; i < texts.size(); i++)
    if (!rows()[i].first.starts_with("{% generation %}")) {
      EXPECT_EQ(texts[i], rows()[i].second) << rows()[i].first;
    }
}

TEST(Jinja, WhatIsWrongIsSaid) {
  const auto render = [](const std::string& text) { JinjaTemplate(text).render(variables()); };
  EXPECT_ERROR(render("a\n{% if x %}"), "endif is missing");
  EXPECT_ERROR(render("a\n{{ x"), "line 2", "}} is missing");
  EXPECT_ERROR(render("{% include 'x' %}"), "the block include is not supported");
  EXPECT_ERROR(render("{{ a | sort }}"), "the filter sort is not supported");
  EXPECT_ERROR(render("{{ a is prime }}"), "the test prime is not supported");
  EXPECT_ERROR(render("{{ open('/etc/passwd') }}"), "open is called");
  EXPECT_ERROR(render("{{ a + t }}"), "number + string");
  EXPECT_ERROR(render("{{ raise_exception('No such role: ' + 'x') }}"), "No such role: x");
  EXPECT_ERROR(render("{{ 1 // 0 }}"), "division by 0");
  EXPECT_ERROR(render("{{ absent.x }}"), "absent, which is undefined");
  EXPECT_ERROR(render("{{ absent[1:] }}"), "absent, which is undefined");
  EXPECT_ERROR(render("{{ absent[0] }}"), "absent, which is undefined");
  EXPECT_ERROR(render("{{ 9999999999999999999 }}"), "more than 18 digits");
  EXPECT_ERROR(render("{{ list.9999999999999999999 }}"), "more than 18 digits");
  EXPECT_ERROR(render("{{ t.find() }}"), "leaves out an argument");
}

// Another's template neither hangs nor fills the memory.
TEST(Jinja, WorkDepthAndTextAreBounded) {
  const auto render = [](const std::string& text) { JinjaTemplate(text).render(variables()); };
  EXPECT_ERROR(render("{% for i in range(1000000) %}{% for j in range(1000000) %}{{ i }}{% endfor %}{% endfor %}"),
               "does not come to an end");
  EXPECT_ERROR(render("{{ range(1000000000) }}"), "a range from 0");
  EXPECT_ERROR(render("{% set ns = namespace(x='aaaaaaaaaaaaaaaa') %}{% for i in range(60) %}{% set ns.x = ns.x + ns.x "
                      "%}{% endfor %}"),
               "bytes of text");
  EXPECT_ERROR(render("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}"), "calls itself too often");
  EXPECT_ERROR(render("{{ " + std::string(100000, '(') + "1" + std::string(100000, ')') + " }}"), "nested too deeply");
  EXPECT_ERROR(render("{{ " + std::string(100000, '-') + "1 }}"), "");
  std::string blocks;
  for (int i = 0; i < 100000; i++) blocks += "{% if a %}";
  EXPECT_ERROR(render(blocks), "nested too deeply");
  std::string nots = "{{ ";
  for (int i = 0; i < 100000; i++) nots += "not ";
  EXPECT_ERROR(render(nots + "1 }}"), "nested too deeply");
}

// Templates in the ways in which families write theirs, and the parts that are read off them.
struct ChatFamily {
  const char* name;
  std::string jinja;
  ChatTemplate chat;
  bool prompts_only = false;
};
const TokenRoles& roles() {
  static const TokenRoles all{{"bos_token", "<s>"}, {"eos_token", "</s>"}};
  return all;
}
std::vector<ChatFamily> chat_families() {
  std::vector<ChatFamily> all;
  const auto builtin = [](const std::string& name) {
    return *std::ranges::find(chat_templates(), name, &ChatTemplate::name);
  };
  ChatTemplate qwen2 = builtin("chatml");
  qwen2.system->otherwise = "You are a helpful assistant of Qwen's kind.";
  all.push_back({"qwen2",
                 "{%- if messages[0]['role'] == 'system' %}\n    {{- '<|im_start|>system\\n' + messages[0]['content'] "
                 "+ '<|im_end|>\\n' }}\n"
                 "{%- else %}\n    {{- '<|im_start|>system\\nYou are a helpful assistant of Qwen\\'s "
                 "kind.<|im_end|>\\n' }}\n{%- endif %}\n"
                 "{%- for message in messages %}\n    {%- if (message.role == \"user\") or (message.role == \"system\" "
                 "and not loop.first) or (message.role == \"assistant\" and not message.tool_calls) %}\n"
                 "        {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>' + '\\n' }}\n    "
                 "{%- endif %}\n{%- endfor %}\n"
                 "{%- if add_generation_prompt %}\n    {{- '<|im_start|>assistant\\n' }}\n{%- endif %}\n",
                 qwen2});
  all.push_back({"chatml",
                 "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + "
                 "'<|im_end|>' + '\n'}}{% endfor %}"
                 "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}",
                 builtin("chatml")});
  all.push_back(
      {"llama3",
       "{% set loop_messages = messages %}{% for message in loop_messages %}{% set content = '<|start_header_id|>' + "
       "message['role'] + '<|end_header_id|>\n\n'+ message['content'] | trim + '<|eot_id|>' %}"
       "{% if loop.index0 == 0 %}{% set content = '<|begin_of_text|>' + content %}{% endif %}{{ content }}{% endfor "
       "%}{% if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{% endif %}",
       builtin("llama3")});
  ChatTemplate dated = builtin("llama3");
  dated.begin = "<s>";
  dated.system->otherwise = "";
  dated.system->before += "Cutting Knowledge Date: December 2023\nToday Date: 26 Jul 2024\n\n";
  all.push_back(
      {"llama 3.1's",
       "{{- bos_token }}\n{%- if not date_string is defined %}\n    {%- set date_string = \"26 Jul 2024\" %}\n{%- "
       "endif %}\n"
       "{%- if messages[0]['role'] == 'system' %}\n    {%- set system_message = messages[0]['content']|trim %}\n    "
       "{%- set messages = messages[1:] %}\n{%- else %}\n    {%- set system_message = \"\" %}\n{%- endif %}\n"
       "{{- \"<|start_header_id|>system<|end_header_id|>\\n\\n\" }}\n{{- \"Cutting Knowledge Date: December 2023\\n\" "
       "}}\n{{- \"Today Date: \" + date_string + \"\\n\\n\" }}\n{{- system_message }}\n{{- \"<|eot_id|>\" }}\n"
       "{%- for message in messages %}\n{{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n'+ "
       "message['content'] | trim + '<|eot_id|>' }}\n{%- endfor %}\n"
       "{%- if add_generation_prompt %}\n    {{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}\n{%- endif "
       "%}\n",
       dated});
  ChatTemplate mistral = builtin("mistral");
  mistral.system.reset();
  all.push_back(
      {"mistral",
       "{{ bos_token }}{% for message in messages %}{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}{{ "
       "raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}{% endif %}"
       "{% if message['role'] == 'user' %}{{ '[INST] ' + message['content'] + ' [/INST]' }}{% elif message['role'] == "
       "'assistant' %}{{ ' ' + message['content'] + eos_token}}{% else %}{{ raise_exception('Only user and assistant "
       "roles are supported!') }}{% endif %}{% endfor %}",
       mistral});
  all.push_back(
      {"zephyr",
       "{% for message in messages %}\n{% if message['role'] == 'user' %}\n{{ '<|user|>\n' + message['content'] + "
       "eos_token }}\n{% elif message['role'] == 'system' %}\n{{ '<|system|>\n' + message['content'] + eos_token }}\n"
       "{% elif message['role'] == 'assistant' %}\n{{ '<|assistant|>\n'  + message['content'] + eos_token }}\n{% endif "
       "%}\n{% if loop.last and add_generation_prompt %}\n{{ '<|assistant|>' }}\n{% endif %}\n{% endfor %}",
       builtin("zephyr")});
  ChatTemplate gemma{.name = "",
                     .begin = "<s>",
                     .system = {},
                     .user = {"<start_of_turn>user\n", "<end_of_turn>\n"},
                     .assistant = {"<start_of_turn>model\n", "", "<end_of_turn>", "\n"},
                     .trim = true};
  all.push_back(
      {"gemma",
       "{{ bos_token }}{% if messages[0]['role'] == 'system' %}{{ raise_exception('System role not supported') }}{% "
       "endif %}{% for message in messages %}"
       "{% if (message['role'] == 'assistant') %}{% set role = 'model' %}{% else %}{% set role = message['role'] %}{% "
       "endif %}{{ '<start_of_turn>' + role + '\n' + message['content'] | trim + '<end_of_turn>\n' }}{% endfor %}{% if "
       "add_generation_prompt %}{{'<start_of_turn>model\n'}}{% endif %}",
       gemma});
  ChatTemplate llama2{.name = "",
                      .begin = "",
                      .system = ChatTemplate::System{"<<SYS>>\n", "\n<</SYS>>\n\n", true},
                      .user = {"<s>[INST] ", " [/INST]"},
                      .assistant = {"", " ", "</s>", ""}};
  all.push_back(
      {"llama 2's",
       "{% if messages[0]['role'] == 'system' %}{% set loop_messages = messages[1:] %}{% set system_message = "
       "messages[0]['content'] %}{% else %}{% set loop_messages = messages %}{% set system_message = none %}{% endif %}"
       "{% for message in loop_messages %}{% if loop.index0 == 0 and system_message is not none %}{% set content = "
       "'<<SYS>>\\n' + system_message + '\\n<</SYS>>\\n\\n' + message['content'] %}{% else %}{% set content = "
       "message['content'] %}{% endif %}"
       "{% if message['role'] == 'user' %}{{ bos_token + '[INST] ' + content + ' [/INST]' }}{% else %}{{ ' '  + "
       "content + eos_token }}{% endif %}{% endfor %}",
       llama2});
  // Whole conversations get an empty thought before their last answer, prompts none.
  all.push_back({"prompts alone",
                 "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' }}{% if loop.last and m.role == 'assistant' "
                 "%}{{ '<think>\n\n</think>\n\n' }}{% endif %}{{ m.content + '<|im_end|>\n' }}{% endfor %}{% if "
                 "add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}",
                 builtin("chatml"), true});
  for (ChatFamily& f : all)
    if (f.chat.name.empty() || f.chat.begin == "<s>" || (f.chat.system && f.chat.system->otherwise))
      f.chat.name = f.name;
  return all;
}

TEST(LearnedTemplate, FamiliesAreRecognisedByWhatTheyRender) {
  for (const ChatFamily& f : chat_families()) {
    SCOPED_TRACE(f.name);
    LearnedTemplate learned{{}, "?"};
    EXPECT_NO_THROW(learned = learn_chat_template(f.jinja, roles(), f.name));
    ChatTemplate expected = f.chat;
    if (expected.name != learned.chat.name && expected.name == "mistral") expected.name = learned.chat.name;
    EXPECT_TRUE(learned.chat == expected) << chat_template_file(learned.chat) << chat_template_file(expected);
    EXPECT_EQ(!learned.prompts_only.empty(), f.prompts_only) << learned.prompts_only;
  }
}

TEST(LearnedTemplate, WhatHasAnotherFormIsSaid) {
  const auto refused = [](const std::string& jinja) {
    return message_of([&] { learn_chat_template(jinja, roles(), "folder"); });
  };
  const std::string chatml = chat_families()[1].jinja;
  for (const auto& [from, to] : {std::pair("message['content']", "message['content'][:5]"),
                                 {"message['content']", "(message['content'] if loop.index0 < 3 else 'forgotten')"},
                                 {"'<|im_end|>'", "''"},
                                 {"message['role'] + '\n'", "message['role'] + (loop.index | string) + '\n'"},
                                 {"message['content']", "message['content'].split('</think>')[-1]"}}) {
    std::string other = chatml;
    other.replace(other.find(from), std::string(from).size(), to);
    EXPECT_NE(refused(other).find("the form of the chat template of folder is not supported"), std::string::npos)
        << other;
    EXPECT_NE(refused(other).find("--template"), std::string::npos) << other;
  }
  EXPECT_NE(refused("{% bad %}").find("the block bad is not supported"), std::string::npos);
}

// What an export writes is read back as what it was, and renders as it does.
TEST(LearnedTemplate, AnExportSaysAllOfATemplate) {
  std::vector<ChatTemplate> all = chat_templates();
  for (const ChatFamily& f : chat_families()) all.push_back(f.chat);
  for (const ChatTemplate& chat : all) {
    const LearnedTemplate again = learn_chat_template(to_jinja(chat), roles(), chat.name);
    EXPECT_EQ(again.prompts_only, "") << chat.name;
    EXPECT_EQ(chat_template_file(again.chat), chat_template_file(chat)) << chat.name << to_jinja(chat);
  }
  ChatTemplate odd = chat_templates().front();
  odd.begin = "a'b\\n\n\t{{ x }}{% y %}";
  const JinjaTemplate jinja(to_jinja(odd));
  EXPECT_EQ(jinja.render(
                Ordered::parse(R"({"messages": [{"role": "user", "content": "q"}], "add_generation_prompt": true})")),
            render_chat_prompt(odd, Messages{{"user", "q"}}));
}

TEST(LearnedTemplate, TransformersRendersWhatIsWrittenAndWhatIsRead) {
  const std::string python = python_with("jinja2");
  if (python.empty()) GTEST_SKIP() << "MEGALITH_PYTHON does not name a Python with jinja2";
  const Scratch scratch;
  std::vector<Ordered> cases;
  std::vector<std::string> expected;
  const auto add = [&](const std::string& jinja, const ChatTemplate& chat, bool prompts_only) {
    for (Messages messages : {Messages{{"user", "q  "}},
                              {{"system", "s"}, {"user", "ä\n"}, {"assistant", " a"}, {"user", "{{"}},
                              {{"user", "q"}, {"assistant", "a"}}}) {
      if (messages[0].role == "system" && !chat.system) messages.erase(messages.begin());
      const bool prompt = messages.back().role == "user";
      if (!prompt && prompts_only) continue;
      Ordered variables{
          {"bos_token", "<s>"}, {"eos_token", "</s>"}, {"add_generation_prompt", prompt}, {"tools", nullptr}};
      for (const ChatMessage& m : messages) variables["messages"].push_back({{"role", m.role}, {"content", m.content}});
      cases.push_back({{"template", jinja}, {"variables", variables}});
      expected.push_back(prompt ? render_chat_prompt(chat, messages) : render_chat(chat, messages).text);
    }
  };
  for (const ChatFamily& f : chat_families()) {
    add(f.jinja, f.chat, f.prompts_only);
    add(to_jinja(f.chat), f.chat, false);
  }
  for (const ChatTemplate& chat : chat_templates()) add(to_jinja(chat), chat, false);
  const auto texts = in_python(python, scratch, cases);
  ASSERT_EQ(texts.size(), expected.size());
  for (size_t i = 0; i < texts.size(); i++) EXPECT_EQ(texts[i], expected[i]) << cases[i];
}

TEST(LearnedTemplate, ThoseOfTheReferenceAreRecognised) {
  const std::string folder = MEGALITH_SOURCE_DIR "/../shared/sft/templates";
  if (!std::filesystem::exists(folder)) GTEST_SKIP() << folder << " is not there: no template is read";
  for (const ChatTemplate& chat : chat_templates()) {
    const LearnedTemplate learned = learn_chat_template(read_file(folder + "/" + chat.name + ".jinja"), {}, "x");
    EXPECT_EQ(chat_template_file(learned.chat), chat_template_file(chat));
    EXPECT_EQ(learned.chat.name, chat.name);
  }
}

}  // namespace
}  // namespace megalith
