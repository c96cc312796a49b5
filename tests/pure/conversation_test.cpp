// Conversations: what was said stays in the cache, and is forgotten where there is no room.
#include "trainer/inference/conversation.h"

#include "tests/pure/inference_model.h"
#include "trainer/inference/engine.h"

namespace megalith {
namespace {

class ConversationTest : public InferenceTest {};

// A model's greedy answers, and what each of them cost.
struct Talk {
  std::vector<std::string> answers;
  std::vector<int64_t> kept, read, forgotten;
};
Talk talk(Inference& inference, const Session& session, int64_t positions, int64_t tokens,
          const std::vector<std::string>& messages) {
  const ChatTemplate chat{.name = "short",
                          .begin = "B",
                          .system = ChatTemplate::System{"S", "."},
                          .user = {"U", "A"},
                          .assistant = {"", "", "\n", ""}};
  const auto engine = inference.open_decoder(1, positions);
  Conversation conversation(*engine->worker, session, inference.tokenizer(), chat, SpecialTexts::ids, {});
  conversation.begin("be short");
  Talk talk;
  for (const std::string& message : messages) {
    std::string& text = talk.answers.emplace_back();
    talk.forgotten.push_back(0);
    const Conversation::Answer answer =
        conversation.answer(message, {.tokens = tokens,
                                      .sampling = {.temperature = 0},
                                      .out = [&](std::string_view piece) { text += piece; },
                                      .forgets = [&](int64_t count) { talk.forgotten.back() = count; }});
    talk.kept.push_back(answer.kept);
    talk.read.push_back(answer.read);
  }
  return talk;
}

// The cache holds what was said; and a text that goes on from it is the one that is read from its beginning.
TEST_F(ConversationTest, AConversationComputesOnlyWhatIsNew) {
  ModelConfig model = model_of_bytes();
  model.context = 96;
  plain_ = random_model(model);
  Inference inference = open(exported(plain_), bytes());
  const Talk found = talk(inference, alone_, 96, 5, {"hello", "and then?", "x"});
  std::string text = "BSbe short.";
  for (size_t i = 0; i < 3; i++) {
    const std::string message = std::vector<std::string>{"hello", "and then?", "x"}[i];
    text += "U" + message + "A";
    std::string whole = text_of(inference, text, 5, {.temperature = 0, .top_k = 0, .seed = 1});
    whole.resize(std::min(whole.size(), whole.find('\n', text.size())));
    EXPECT_EQ(found.answers[i], whole.substr(text.size())) << "answer " << i;
    // The token that ends an answer was not passed on.
    const auto before = static_cast<int64_t>(text.size());
    EXPECT_EQ(found.kept[i] + found.read[i], before);
    if (i > 0) {
      EXPECT_EQ(found.read[i], static_cast<int64_t>(message.size()) + 3) << "the end of the answer, U, A";
    }
    text += found.answers[i] + "\n";
  }
}

TEST_F(ConversationTest, AConversationForgetsTheOldestMessagesWhenThereIsNoRoom) {
  ModelConfig model = model_of_bytes();
  model.context = 60;
  plain_ = random_model(model);
  Inference inference = open(exported(plain_), bytes());
  const std::string message(10, 'm');
  const Talk found = talk(inference, alone_, 60, 4, {message, message, message});
  EXPECT_EQ(found.forgotten, (std::vector<int64_t>{0, 0, 2}));
  EXPECT_EQ(found.kept[2], 11 + 1 + 10 + 1) << "the beginning and a first message of the same words";
  EXPECT_NE(message_of([&] { talk(inference, alone_, 60, 4, {std::string(60, 'm')}); }).find("the context is 60"),
            std::string::npos);
}

}  // namespace
}  // namespace megalith
