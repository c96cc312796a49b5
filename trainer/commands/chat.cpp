// Implements megalith chat.
#include <algorithm>

#include "data/conversations/chat_template_jinja.h"
#include "data/tokenizers/whole_characters.h"
#include "kernels/system/counted.h"
#include "trainer/commands/command.h"
#include "trainer/commands/model_arguments.h"
#include "trainer/commands/texts.h"
#include "trainer/inference/conversation.h"
#include "trainer/inference/engine.h"
#include "trainer/job/agreement.h"

namespace megalith {

namespace {

struct ChatOptions {
  ModelArguments model;
  std::string template_name, system;
  int64_t tokens = 0;
  SamplingArguments sampling = {};
};

constexpr const char* chat_keys = "Ctrl-C ends an answer, Ctrl-D the program; /help lists the commands.";
constexpr const char* chat_commands =
    "/reset           start a new conversation\n/system TEXT     start one with this system message; without TEXT: "
    "with none\n//...            a message that begins with one /\nCtrl-C           end an answer\nCtrl-D           "
    "end the program";

// Returns the template whose control tokens the tokenizer has, for folders without a template.
const char* template_of_tokens(const Tokenizer& tokenizer) {
  const std::vector<SpecialToken> specials = tokenizer.special_tokens();
  const auto has = [&](const char* text) {
    return std::ranges::find(specials, text, &SpecialToken::text) != specials.end();
  };
  if (has("<|im_start|>")) return "chatml";
  if (has("<|start_header_id|>")) return "llama3";
  if (has("[INST]")) return "mistral";
  return "plain";
}

// Returns the first of these that exists: the template of the option, of the training, of the folder, or the one whose
// tokens the tokenizer has. `remark` gives the reason.
ChatTemplate template_for(const ChatOptions& o, const Inference& inference, std::string& remark) {
  const Tokenizer& tokenizer = inference.tokenizer();
  if (!o.template_name.empty()) return named_chat_template(o.template_name, tokenizer.use()).chat;
  if (inference.use().chat) return *inference.use().chat;
  const std::string& jinja = tokenizer.use().jinja;
  if (!jinja.empty()) return learn_chat_template(jinja, tokenizer.use().roles, o.model.checkpoint).chat;
  const char* name = template_of_tokens(tokenizer);
  remark = fmt::format("{} has no chat template; using {}{}", o.model.checkpoint, name,
                       name == std::string("plain") ? ", which fits any tokenizer" : ", by its special tokens");
  return chat_template(name);
}

// Prints on rank 0 only.
class Talker {
 public:
  Talker(Dialogue& dialogue, bool speaks) : dialogue_(dialogue), speaks_(speaks) {}
  void remark(const std::string& text) const {
    if (speaks_) dialogue_.remark(text);
  }
  // Prints a hint for users at a terminal.
  void hint(const std::string& text) const {
    if (dialogue_.with_somebody()) remark(text);
  }
  void end_line() const {
    if (speaks_) dialogue_.write("\n");
  }

 private:
  Dialogue& dialogue_;
  bool speaks_;
};

// Obeys a line that is a command, which begins with one /. Returns whether it is one.
bool obey(const std::string& line, Conversation& conversation, const Talker& talker) {
  if (!line.starts_with('/') || line.starts_with("//")) return false;
  const size_t blank = line.find(' ');
  const std::string word = line.substr(0, blank), rest = blank == std::string::npos ? "" : line.substr(blank + 1);
  if (word == "/reset" || word == "/system") {
    conversation.begin(word == "/system" ? rest : conversation.system());
    talker.hint("A new conversation.");
  } else if (word == "/help") {
    talker.remark(chat_commands);
  } else {
    talker.remark(word + " is not a command. These are:\n" + chat_commands);
  }
  return true;
}

void tell_end(const Conversation::Answer& answer, int64_t context, int64_t tokens, const Talker& talker) {
  using End = Conversation::Answer::End;
  if (answer.end == End::full)
    talker.remark(
        fmt::format("The context of {} is full, so the answer ends here. The next message drops the oldest ones.",
                    counted(context, "token")));
  if (answer.end == End::length)
    talker.hint(fmt::format("The answer ends after {} (--tokens).", counted(tokens, "token")));
}

void tell_forgotten(int64_t messages, int64_t context, const Talker& talker) {
  talker.remark(fmt::format("The context of {} is full: the oldest {} are dropped, and the rest is read again.",
                            counted(context, "token"), counted(messages, "message")));
}

int chat(const ChatOptions& o, const Session& session) {
  Dialogue dialogue;
  const Talker talker(dialogue, session.rank() == 0);
  Inference inference = o.model.open(session);
  ChatTemplate form;
  std::string why_template;
  together(session, [&] {
    o.sampling.check();
    form = template_for(o, inference, why_template);
    CHECK(o.system.empty() || form.system,
          "the template {} has no system message; leave --system out, or choose another", form.name);
  });
  const int64_t context = inference.model().context;
  const auto engine = inference.open_decoder(1, context);
  SamplingArguments sampling = o.sampling;
  if (!why_template.empty()) talker.remark(why_template);
  for (const std::string& line : sampling.take_defaults(inference.use().generation)) talker.remark(line);
  Conversation conversation(*engine->worker, session, inference.tokenizer(), form, inference.special_texts(),
                            inference.use().ends);
  conversation.begin(o.system);
  talker.hint(fmt::format("{} with the template {}. {}", o.model.checkpoint, form.name, chat_keys));
  while (const std::optional<std::string> line = typed_line(session, dialogue, "> ", chat_keys)) {
    if (line->empty() || obey(*line, conversation, talker)) continue;
    WholeCharacters characters;
    try {
      const Conversation::Answer answer =
          conversation.answer(line->starts_with("//") ? line->substr(1) : *line,
                              {.tokens = o.tokens,
                               .sampling = sampling.sampling,
                               .least = sampling.least,
                               .shows_specials = sampling.shows_specials,
                               .out = [&](std::string_view text) { dialogue.write(characters.add(text)); },
                               .interrupted = [&] { return dialogue.interrupted(); },
                               .forgets = [&](int64_t messages) { tell_forgotten(messages, context, talker); }});
      if (session.rank() == 0) dialogue.write(characters.rest());
      talker.end_line();
      tell_end(answer, context, o.tokens, talker);
    } catch (const JobError&) {
      throw;
    } catch (const Error& e) {  // an error of the message, and so on all ranks
      talker.remark(e.what());
    }
  }
  if (dialogue.with_somebody()) talker.end_line();
  return 0;
}

}  // namespace

Command chat_command(CLI::App& cli) {
  auto* app = cli.add_subcommand("chat", "Chat with a model that was trained on conversations; on one rank or several");
  auto o = std::make_shared<ChatOptions>();
  add_model(app, o->model);
  app->add_option("--template", o->template_name,
                  "the form of messages in a text: chatml, llama3, mistral, zephyr, plain, a file "
                  "(data/conversations/chat_template.h, or Jinja), or a folder that has one; default: that of the "
                  "training, else that of the model's folder");
  app->add_option("--system", o->system, "system message, before all others");
  add_number(app, "--tokens", o->tokens,
             "maximum number of tokens in an answer; 0: as many as the context has room for");
  add_sampling(app, o->sampling);
  add_model_options(app, o->model);
  return {
      app, {}, [o](const Session& session) { return chat(*o, session); }, [o] { return o->model.communication(true); }};
}

}  // namespace megalith
