// What a run measures, for TensorBoard: a file of events in FOLDER for each start of the run. The tags are the keys of
// metrics.jsonl, and KEY/NAME for the numbers of an object.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "trainer/log/patient_file.h"

namespace megalith {

class EventFile {
 public:
  // Begins a file. Of earlier ones TensorBoard then shows the steps up to `completed`, so that it shows none twice.
  EventFile(const std::string& folder, int64_t completed, double unix_time);

  // A line of metrics.jsonl: its numbers, at its "step" and "unix_time".
  void append(const nlohmann::ordered_json& line);
  // PatientFile says what it returns.
  std::string sync() { return file_.sync(); }

 private:
  PatientFile file_;
};

}  // namespace megalith
