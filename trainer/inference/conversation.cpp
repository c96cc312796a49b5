#include "trainer/inference/conversation.h"

#include <algorithm>
#include <span>

#include "kernels/system/counted.h"
#include "trainer/job/agreement.h"

namespace megalith {

namespace {

constexpr int32_t interrupt = -3;  // a further value, with text_is_over and logits_not_finite

// Prints an answer without the lead with which every answer begins.
class WithoutLead {
 public:
  WithoutLead(std::string_view lead, const std::function<void(std::string_view)>& out) : lead_(lead), out_(out) {}

  void add(std::string_view piece) {
    held_ += piece;
    if (!begun_ && held_.size() < lead_.size() && lead_.starts_with(held_)) return;
    flush();
  }
  void flush() {
    if (!begun_ && held_.starts_with(lead_)) held_.erase(0, lead_.size());
    begun_ = true;
    if (!held_.empty()) out_(held_);
    held_.clear();
  }

 private:
  std::string_view lead_;
  const std::function<void(std::string_view)>& out_;
  std::string held_;
  bool begun_ = false;
};

}  // namespace

Conversation::Conversation(Decoder& decoder, const Session& session, const Tokenizer& tokenizer,
                           const ChatTemplate& chat, SpecialTexts special_texts, const std::vector<int32_t>& ends)
    : decoder_(decoder),
      session_(session),
      tokenizer_(tokenizer),
      chat_(chat),
      end_(end_of_answer(chat, tokenizer)),
      ends_(end_.ids),
      specials_(tokenizer),
      encoder_(chat, tokenizer, special_texts) {
  ends_.insert(ends_.end(), ends.begin(), ends.end());
}

void Conversation::begin(const std::string& system) {
  system_ = system;
  messages_.clear();
}

std::vector<int32_t> Conversation::ids_of(const std::vector<ChatMessage>& messages) {
  std::vector<ChatMessage> all;
  if (!system_.empty()) all.push_back({"system", system_});
  all.insert(all.end(), messages.begin(), messages.end());
  std::vector<int32_t> ids;
  encoder_.encode_prompt(all, ids);
  if (ids.empty()) ids.push_back(tokenizer_.end_of_text());
  return ids;
}

// Drops the oldest messages until there is room. Returns the ids of the others.
std::vector<int32_t> Conversation::fitted(std::vector<ChatMessage>& messages) {
  const int64_t room = decoder_.positions();
  for (;;) {
    std::vector<int32_t> ids = ids_of(messages);
    const bool alone = messages.size() == 1;
    if (std::ssize(ids) <= room - (alone ? 1 : room / 4)) return ids;
    CHECK(!alone,
          "the message takes {} with its template{}, but the context is {}, including one token for an answer; send a "
          "shorter one",
          counted(ids.size(), "token"), system_.empty() ? "" : " and the system message", room);
    messages.erase(messages.begin(), messages.begin() + 2);
  }
}

void Conversation::read(const std::vector<int32_t>& ids, Answer& answer) {
  const auto common = std::ranges::mismatch(held_, ids).in2 - ids.begin();
  const int64_t kept = std::min<int64_t>(common, std::ssize(ids) - 1);  // the last one produces the logits
  const std::span<const int32_t> more = std::span(ids).subspan(static_cast<size_t>(kept));
  if (kept == 0)
    decoder_.begin(0, more);
  else
    decoder_.extend(0, kept, more);
  held_ = ids;
  answer.kept = kept;
  answer.read = std::ssize(more);
}

// Returns the next token, the same on all ranks, or one of the values for none.
int32_t Conversation::next(const How& how, int64_t number) {
  decoder_.read_logits(logits_);
  std::vector<int32_t> token(1), stops(1);
  const int chooser = decoder_.first_with_logits();
  if (session_.rank() == chooser)
    token[0] = next_token(logits_, tokenizer_, how.sampling, {ends_, how.least}, held_, answers_, number);
  if (session_.rank() == 0) stops[0] = how.interrupted && how.interrupted();
  if (session_.size() > 1) {
    decoder_.share(token, chooser);
    decoder_.share(stops, 0);
  }
  if (token[0] == logits_not_finite)
    together(session_, [] { FAIL("the logits of the next token are not finite: {}", why_not_finite); });
  if (stops[0] != 0) return interrupt;
  return token[0];
}

Conversation::Answer::End Conversation::write(const How& how, std::string& text) {
  using End = Answer::End;
  const std::vector<std::string> stops =
      end_.is_one_token ? std::vector<std::string>{} : std::vector<std::string>{end_.text};
  StoppingText shown(stops);
  const std::function<void(std::string_view)> tell = [&](std::string_view piece) {
    text += piece;
    if (session_.rank() == 0) how.out(piece);
  };
  WithoutLead answer(chat_.assistant.lead, tell);
  End end = End::whole;
  for (int64_t number = 0;; number++) {
    const int32_t token = next(how, number);
    if (token == interrupt) end = End::interrupted;
    if (token < 0) break;
    const std::string_view bytes = how.shows_specials ? tokenizer_.token_bytes(token) : specials_.bytes_of(token);
    if (const std::string more = shown.add(bytes); !more.empty()) answer.add(more);
    if (shown.stopped()) break;
    if (std::ssize(held_) == decoder_.positions()) {
      end = End::full;
      break;
    }
    held_.push_back(token);
    const Decoder::Next one{.place = 0, .position = std::ssize(held_) - 1, .token = token};
    decoder_.advance(std::span(&one, 1));
    if (how.tokens > 0 && number + 1 == how.tokens) {
      end = End::length;
      break;
    }
  }
  if (const std::string rest = shown.rest(); !rest.empty()) answer.add(rest);
  answer.flush();
  return end;
}

Conversation::Answer Conversation::answer(const std::string& message, const How& how) {
  Answer answer;
  std::vector<ChatMessage> messages = messages_;
  messages.push_back({"user", message});
  const int64_t all = std::ssize(messages);
  const std::vector<int32_t> ids = fitted(messages);
  if (const int64_t gone = all - std::ssize(messages); gone > 0 && session_.rank() == 0 && how.forgets)
    how.forgets(gone);
  read(ids, answer);
  std::string text;
  answer.end = write(how, text);
  messages.push_back({"assistant", text});
  messages_ = std::move(messages);
  answers_++;
  return answer;
}

}  // namespace megalith
