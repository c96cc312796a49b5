// Describes threads and memory of the machine that a rank runs on.
#pragma once

#include <cstdint>
#include <string>

namespace megalith {

// Sets the number of OpenMP threads of this process and returns it: OMP_NUM_THREADS if set, else this rank's share of
// the machine's cores (and never more than this process may run on).
int use_threads(int ranks_on_this_node);

// Returns a sentence if this process has more threads than cores that it may run on, as under `mpirun`, which binds
// each rank to one core; else "".
std::string crowded_threads(int threads);

// Throws Error if OMP_NUM_THREADS is not a number of threads that a machine can have.
void check_threads();

// Throw Error if this process's limit is below the program's needs: the stack, for all commands; open files, for
// training.
void check_stack();
void check_open_files();

// Returns "Intel(R) Xeon(R) Platinum 8480+".
std::string processor_name();

int64_t physical_memory();  // bytes

// Returns the free bytes of /dev/shm, by which processes share memory, or 0 if it does not exist.
int64_t free_shared_memory();

// Returns the bytes of this process in physical memory, mapped files included.
int64_t resident_memory();

// Returns the command that started this process, quoted for a shell and without the launcher's part (`mpirun -n 2`), or
// "" if unknown.
std::string command_line();

// Returns a text that is equal for all processes of this machine since it started, and different on others.
std::string machine_id();

}  // namespace megalith
