#include "trainer/step/account.h"

#include <algorithm>
#include <numeric>

namespace megalith {

const char* name_of(Account account) {
  constexpr const char* names[num_accounts] = {"GEMM",
                                               "attention",
                                               "elementwise",
                                               "optimizer",
                                               "Muon's directions",
                                               "work slowed by transfers",
                                               "gathers",
                                               "scatters",
                                               "tensor-parallel sums",
                                               "sums over copies",
                                               "messages",
                                               "bubble",
                                               "host copies",
                                               "input",
                                               "launches",
                                               "evaluation",
                                               "sampling",
                                               "checkpoint",
                                               "elsewhere"};
  return names[static_cast<size_t>(account)];
}

double total(const Accounts& accounts) { return std::accumulate(accounts.begin(), accounts.end(), 0.0); }

Accounts& operator+=(Accounts& a, const Accounts& b) {
  for (size_t i = 0; i < num_accounts; i++) a[i] += b[i];
  return a;
}

Account account_of_op(const Cost& cost) {
  if (cost.section == Cost::Section::directions) return Account::directions;
  switch (cost.kind) {
    case Cost::Kind::gemm:
    case Cost::Kind::gemm_add: return Account::gemm;
    case Cost::Kind::attention: return Account::attention;
    case Cost::Kind::update: return Account::optimizer;
    case Cost::Kind::input: return Account::input;
    default: return Account::elementwise;
  }
}

Account account_of_wait(Channel channel, Transfer transfer) {
  switch (channel) {
    case Channel::tensor: return transfer == Transfer::all_to_all ? Account::directions : Account::tensor_sums;
    case Channel::heads: return Account::tensor_sums;
    case Channel::data: return Account::copy_sums;
    case Channel::forward:
    case Channel::backward:
    case Channel::forward_return:
    case Channel::backward_return:
    case Channel::world: return Account::messages;
    case Channel::host: return Account::host_copies;
    default: return transfer == Transfer::all_gather ? Account::gathers : Account::scatters;
  }
}

std::vector<Accounts> accounts_of_ranks(const std::vector<Accounts>& so_far, size_t this_rank, const Accounts& mine) {
  Accounts after = mine;
  for (size_t a = 0; a < num_accounts; a++) after[a] -= so_far[this_rank][a];
  const double all = total(mine);
  std::vector<Accounts> ranks;
  for (const Accounts& theirs : so_far) {
    Accounts& rank = ranks.emplace_back(theirs);
    rank += after;
    double& waited = at(rank, Account::bubble);
    waited += all - total(rank);
    if (waited >= 0) continue;
    // Its clock shows more than there was: it left the previous step's sum a little earlier.
    waited = 0;
    const double more = total(rank) / all;
    for (double& seconds : rank) seconds /= more;
  }
  return ranks;
}

Accounts mean(const std::vector<Accounts>& ranks) {
  Accounts sum{};
  for (const Accounts& rank : ranks) sum += rank;
  for (double& seconds : sum) seconds /= static_cast<double>(ranks.size());
  return sum;
}

size_t slowest(const std::vector<Accounts>& ranks) {
  const auto waits = [](const Accounts& rank) {
    double seconds = 0;
    for (const Account a : {Account::gathers, Account::scatters, Account::tensor_sums, Account::copy_sums,
                            Account::messages, Account::bubble})
      seconds += at(rank, a);
    return seconds;
  };
  return static_cast<size_t>(std::ranges::min_element(ranks, {}, waits) - ranks.begin());
}

}  // namespace megalith
