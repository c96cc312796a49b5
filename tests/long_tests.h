// Everything that a normal run leaves out and a night takes, in one list. A test reads its entry by name, and a name
// that is not in the list does not compile. tests/pure/long_tests_test.cpp finds entries that nobody reads;
// tests/CMakeLists.txt reads those of the runs of tests/mpi. MEGALITH_LONG_TESTS=1 asks for a night; tests/nightly.sh
// says what else it runs.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <limits>
#include <string_view>

namespace megalith {
namespace long_tests {

struct Entry {
  std::string_view name;     // of a test, or of what several tests use
  int64_t by_day, by_night;  // where 0 and 1 stand, whether
  std::string_view what;     // is counted or left out, and why the day does without
};

inline constexpr int64_t all = std::numeric_limits<int64_t>::max();

// Where no other reason is given, the day saves time: what it takes is spread over all that the night takes.
inline constexpr Entry entries[] = {
    // tests/crash_states.h: the day takes those states of a disk that order or chance makes likely.
    {"CrashStates.RepeatedWrites", 0, 1, "moments after a write of a file that the next call writes as well"},
    {"CrashStates.Subsets", 3, 10, "changes of names, up to so many of which all subsets are tried"},
    {"CrashStates.TornWrites", 0, 40, "writes of a file, up to so many of which each is torn in turn; else the last"},
    {"CrashStates.Combinations", 0, 4096,
     "combinations of what up to three files hold, up to so many of which all are"},
    {"CrashStates.Others", 1, 2, "what the other files hold while one varies: all of their writes, or none"},

    // tests/pure
    {"DryRun.PlansThirtyBillionParametersOn256RanksInFiveSeconds", 0, 1, "a second layout in the same time"},
    {"DryRun.PlansManyMicrobatchesOfTensorAndPipelineInFiveSeconds", 0, 1, "three million transfers"},
    {"Matcher.FindsEveryPlantedFault", 50, 100, "rounds, each with one of every fault"},
    {"Matcher.FindsTheReorderingsThatDeadlockAndNoOthers", 70, 200, "rounds, each with one of every reordering"},
    {"TwoPages.AProcessThatCannotBeLookedAtIsNotDead", 1, 0,
     "the night's sanitizer takes every object for a foreign one while no file can be opened"},
    {"Schedule.NumbersOfMicrobatches", 9, 32, "up to here every number; above, where a round of stages begins"},
    {"RunCrash.AtAnyCallKeepsItsPromises", 30, 1, "one state in so many is gone on from; the others are only read"},
    {"RunCrash.NoFlushCanBeLeftOut", 13, 1, "one flush in so many"},
    {"Layout.EveryProductIsLaidOutOrRefusedWithWhatIsAccepted", 5, 1, "one layout in so many, others for each variant"},
    {"Layout.HierarchicalGathersFitTheirNodes", 5, 1, "one layout in so many"},
    {"AlteredLines.CalibrateNothingOrAreRefused", 3, 1, "one damaged text in so many, since each makes a plan"},
    {"Gradients.AreTheDifferencesOfTheLoss", 5, 30,
     "elements of each gradient, beside three directions over all of them"},

    // tests/simulated_gpu and tests/device, whose machine takes seconds for an op
    {"SimulatedGpuRun.HeadSizesOfTheTensorCoresAreAsOnTheCpuAndTwiceTheSameBits", 2, 5,
     "head sizes of the tensor cores, in the order of the test"},
    {"DeviceWidths.Attention", 0, 1, "chips and types that have nothing that others do not have as well"},
    {"DeviceWidths.AttentionOfDocuments", 0, 1, "chips and types that have nothing that others do not have as well"},
    {"DeviceBits.AttentionOfGroupsTogetherAndApart", 0, 1, "dropout without documents, and documents without dropout"},

    // tests/checkpoints, tests/configs, tests/data and tests/fuzz
    {"Damaged.flipped_bytes", 500, all, "bytes of each file"},
    {"Damaged.zeros_and_noise", 40, 100, "rounds"},
    {"Hostile.structure_of_which_any_byte_was_changed", 11, 1, "one byte in so many"},
    {"Hostile.structure_that_is_noise", 200, 10000, "rounds"},
    {"Crash.no_flush_can_be_left_out", 7, 1, "one flush in so many"},
    {"Fuzz.DamagedFiles", 1500, 4000, "mutations"},
    {"Fuzz.DamagedOverrides", 1500, 4000, "mutations"},
    {"RunCut.changesNoIdWhateverFollows", 150, 3000, "vocabularies"},
    {"RunCut.theTokenizersCutChangesNoId", 60, 2000, "vocabularies"},
    {"RunCut.sixtyMillionLettersTakeLittleMemory", 3'000'000, 60'000'000, "letters"},
    {"PrepareCrash.AfterAKillAsWell", 50, 1, "a kill after one call in so many"},
    {"PrepareCrash.NoFlushCanBeLeftOut", 3, 1, "one flush in so many"},
    {"Prepare.ManySmallWindowsEqualOneWholeText", 5, 1, "one size of window in so many"},
    {"Restart.GoesOnAfterAFailureAnywhere", 23, 1, "a failure at one call in so many"},
    {"Seeds.edited_are_read_or_refused", 300, 20000, "edits for each reader"},

    // tests/end_to_end
    {"Kill.kills", 8, 60, "kills of a training at random moments"},
    {"Kill.kills_of_layouts", 2, 20, "kills of such trainings in other layouts"},
    {"Kill.steps", 40, 150, "steps of that training"},
    {"Hang.random_faults_are_named", 4, 100, "hangs planted at random; MEGALITH_HANGS asks for others"},
    {"Hang.in_time", 0, 1, "whether they are named in time, on a machine that does nothing else"},
    {"Muon.layouts", 4, all, "layouts that Muon's references are trained in"},
    {"Course.steps", 4, all, "steps of a reference's course that layouts are compared over"},
    {"Answers.layouts", 1, 8, "layouts on each number of ranks, packed or not"},
    {"Golden.small_to_the_end_of_its_course", 0, 1,
     "the course on three ranks as well, whose beginning layouts_test has"},
    {"Golden.sixteen_bits_agree_on_several_ranks", 4, 8, "ranks"},
    {"Families.layouts", 4, all,
     "layouts in which each family takes its reference's course, the last of which differ "
     "in what GPT-2's are tried in as well"},
    {"FamiliesInSixteenBits.layouts", 1, 5, "layouts in which each family is near its reference"},
    {"Corpus.bytes", 8 << 20, 48 << 20, "bytes of a corpus that is prepared"},
    {"Corpus.interruptions", 8, 200, "interruptions of that at random moments"},
    {"Recipes.of_clusters_are_rehearsed", 0, 1, "recipes that have the mechanisms of one before them"},
    {"BadSteps.a_loss_scale_falls_and_rises_alike_in_pieces", 0, 1,
     "the layouts between that with one axis and that with all"},
    {"WrittenTexts.layouts", 7, all, "layouts, in the order of the test, in which a run writes texts"},

    // tests/mpi
    {"mpi/1_ranks", 0, 1, "one rank, which finds nothing that several do not"},
    {"mpi/6_ranks", 0, 1, "on six ranks those tests that find nothing there that they do not find on four and eight"},
    {"Adapters.Layouts", 0, 1, "layouts beyond one of each axis and kind of memory"},
    {"GradientReduce.FollowsTheCourseOfFp32", 2, 1, "one layout in so many"},
    {"Layouts.StrategiesOverOneRank", 3, 1,
     "one in so many of the strategies that shard over one rank, which are alike"},
    {"FirstBadOp.IsTheOneThatReadsWhatWasPlanted", 3, 1,
     "on more than four ranks, which share few cores, one plant in so many"},
    {"BadSteps.UpdateOnNoRankAndLeaveNoTrace", 2, all, "faults in each layout; in the first all"},
};

inline bool is_night() {
  const char* wish = std::getenv("MEGALITH_LONG_TESTS");
  return wish && std::string_view(wish) == "1";
}

// The name of an entry.
struct Name {
  consteval Name(const char* name) {  // NOLINT(google-explicit-constructor): it is written as a string
    for (const Entry& one : entries)
      if (one.name == name) entry = &one;
    if (!entry) throw "no entry of long_tests.h";
  }
  const Entry* entry = nullptr;
};

}  // namespace long_tests

// How much of what the entry counts this run takes.
inline int64_t taken(long_tests::Name name) {
  return long_tests::is_night() ? name.entry->by_night : name.entry->by_day;
}

}  // namespace megalith
