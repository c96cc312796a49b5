// Trains a small model, and plants what makes the ranks of a job wait for ever: on one rank, in one step, at one of the
// calls that it makes there. (A message that is left out leaves nobody waiting where MPI sends it off at once.)
//
//   planted_hangs FOLDER TIMEOUT TENSOR PIPELINE VIRTUAL SCHEDULE STEPS [FAULT RANK STEP CALL]
//
// FAULT is skip, other (a barrier instead), bytes (half of them), stop (SIGSTOP), kill (SIGKILL), slow (for half of the
// time-out); FOLDER/planted is written then. CALL is the number of a collective, or where the rank is stopped or killed
// of any call, messages as well. Rank 0 prints how many of both a step of each rank has.
#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <thread>

#include "kernels/system/check.h"
#include "tests/pure/small_run.h"
#include "trainer/communication/mpi.h"
#include "trainer/job/agreement.h"
#include "trainer/session/open_session.h"

namespace {

using namespace megalith;

struct Fault {
  std::string folder, name;
  int rank = -1;
  int64_t step = 0, call = 0;
  double timeout = 0;

  // These are of this rank, and change as it goes on.
  bool mine = false;
  int64_t now = 0, collectives = 0, calls = 0;

  void begin_step(int64_t step_now) {
    now = step_now;
    collectives = calls = 0;
  }
  // Whether the call that begins here is the one; what need not change the call is done.
  bool here(bool message = false) {
    calls++;
    collectives += !message;
    const bool ends = name == "stop" || name == "kill";
    if ((message && !ends) || (ends ? calls : collectives) != call || now != step || !mine) return false;
    std::ofstream(folder + "/planted") << name;
    if (name == "stop") raise(SIGSTOP);
    if (name == "kill") raise(SIGKILL);
    if (name == "slow") std::this_thread::sleep_for(std::chrono::duration<double>(timeout / 2));
    return true;
  }
};

// What every rank's communicators are made of here.
class FaultyCommunicator : public Communicator {
 public:
  FaultyCommunicator(std::unique_ptr<Communicator> inner, Fault& fault)
      : Communicator(inner->name(), inner->channel(), inner->rank(), inner->size()),
        inner_(std::move(inner)),
        fault_(fault) {}

 protected:
  std::unique_ptr<Communicator> do_split(std::string name, int channel, int color, int key) override {
    return std::make_unique<FaultyCommunicator>(inner_->split(std::move(name), channel, color, key), fault_);
  }
  Pending do_all_gather(Stream& s, Tensor out, Tensor in) override {
    return planted(s, [&](bool less) {
      const int64_t n = less ? in.numel() / 2 : in.numel();
      return inner_->all_gather(s, out.flat(0, n * size()), in.flat(0, n));
    });
  }
  Pending do_reduce_scatter(Stream& s, Tensor out, Tensor in) override {
    return planted(s, [&](bool less) {
      const int64_t n = less ? out.numel() / 2 : out.numel();
      return inner_->reduce_scatter(s, out.flat(0, n), in.flat(0, n * size()));
    });
  }
  Pending do_all_gather_of(Stream& s, Interval of, Tensor out, Tensor in) override {
    return planted(s, [&](bool less) {
      const int64_t n = less ? in.numel() / 2 : in.numel();
      return inner_->all_gather_of(s, of, out.flat(0, n * of.size()), in.flat(0, n));
    });
  }
  Pending do_reduce_scatter_to(Stream& s, Interval of, Tensor out, Tensor in) override {
    return planted(s, [&](bool less) {
      const int64_t n = less ? out.numel() / 2 : out.numel();
      return inner_->reduce_scatter_to(s, of, out.flat(0, n), in.flat(0, n * of.size()));
    });
  }
  Pending do_all_reduce(Stream& s, Tensor data, Reduce op) override {
    return planted(s,
                   [&](bool less) { return inner_->all_reduce(s, data.flat(0, data.numel() / (less ? 2 : 1)), op); });
  }
  Pending do_all_to_all(Stream& s, Tensor out, Tensor in) override {
    return planted(s, [&](bool) { return inner_->all_to_all(s, out, in); });
  }
  Pending do_all_to_all_of(Stream& s, Tensor out, Tensor in, const AllToAllParts& parts) override {
    return planted(s, [&](bool) { return inner_->all_to_all(s, out, in, parts); });
  }
  Pending do_broadcast(Stream& s, Tensor data, int root) override {
    return planted(s, [&](bool) { return inner_->broadcast(s, data, root); });
  }
  Pending do_send(Stream& s, Tensor data, int peer) override {
    fault_.here(true);
    return inner_->send(s, data, peer);
  }
  Pending do_recv(Stream& s, Tensor data, int peer) override {
    fault_.here(true);
    return inner_->recv(s, data, peer);
  }
  void do_barrier() override {
    Stream s(World::cpu);
    inner_->barrier(s);
  }

 private:
  Pending planted(Stream& s, const std::function<Pending(bool)>& begin) {
    if (!fault_.here()) return begin(false);
    if (fault_.name == "skip") return {};
    if (fault_.name == "other") return inner_->barrier(s), Pending();
    return begin(fault_.name == "bytes");
  }

  std::unique_ptr<Communicator> inner_;
  Fault& fault_;
};

PipelineSchedule schedule_of(const std::string& word) {
  const std::optional<PipelineSchedule> schedule = parse_choice<PipelineSchedule>(word);
  CHECK(schedule, "{} is no schedule", word);
  return *schedule;
}

Config layout(int ranks, int tensor, int pipeline, int virtual_stages, PipelineSchedule schedule) {
  Config config = small_config();
  config.model = {.layers = 4, .hidden = 12, .heads = 6, .vocab = 31, .context = 13, .dropout = 0};
  config.batch = {.sequence_length = 12, .global_batch_size = 8, .microbatch_size = 1};
  config.parallel.tensor_parallel_degree = tensor;
  if (tensor > 1) {  // in pieces, of all kinds
    config.batch.global_batch_size = 16;
    config.batch.microbatch_size = 4;
    config.parallel.tensor_pieces = 2;
    config.parallel.sequence_parallel = ranks > 2;
  }
  config.parallel.pipeline_parallel_degree = pipeline;
  config.parallel.virtual_stages = virtual_stages;
  config.parallel.pipeline_schedule = schedule;
  config.parallel.sharded_data_parallel_degree = ranks / tensor / pipeline;
  return resolve(config);
}

void train(const Session& session, const Config& config, int64_t steps, Fault& fault) {
  FaultyCommunicator world(host_world(session), fault);
  SmallRun run(config, Mesh(mesh_shape(config, session.size()), world));
  for (int64_t step = 1; step <= steps; step++) {
    fault.begin_step(step);
    session.recorded()->recorder().begin_step(step);
    run.step(step - 1);
    if (step > 1) continue;
    const std::vector<int64_t> collectives = of_all_ranks(session, fault.collectives),
                               calls = of_all_ranks(session, fault.calls);
    for (size_t r = 0; r < calls.size() && session.rank() == 0; r++)
      fmt::print("rank {}: {} collectives of {} calls\n", r, collectives[r], calls[r]);
    std::fflush(stdout);
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 8) return 2;
  const std::string folder = argv[1];
  Fault fault;
  fault.folder = folder;
  fault.timeout = std::atof(argv[2]);
  CommunicationConfig communication;
  communication.timeout = fault.timeout;
  const std::unique_ptr<Session> session = open_session(communication, &argc, &argv);
  if (argc > 11) {
    fault.name = argv[8];
    fault.rank = std::atoi(argv[9]);
    fault.step = std::atoll(argv[10]);
    fault.call = std::atoll(argv[11]);
    fault.mine = fault.rank == session->rank();
  }
  // As in a run that saves before it ends: mpirun's request, when a rank has died, does not end the others at once.
  ::signal(SIGTERM, SIG_IGN);
  try {
    session->dump_into(folder + "/calls", folder + "/log.txt");
    const Config config =
        layout(session->size(), std::atoi(argv[3]), std::atoi(argv[4]), std::atoi(argv[5]), schedule_of(argv[6]));
    train(*session, config, std::atoll(argv[7]), fault);
  } catch (const std::exception& e) {
    fmt::print(stderr, "planted_hangs: rank {}: {}\n", session->rank(), e.what());
    session->abort(1);
  }
}
