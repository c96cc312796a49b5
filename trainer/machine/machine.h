// Describes threads and memory of the machine that a rank runs on.
#pragma once

#include <cstdint>
#include <string>

namespace megalith {

// Sets the number of OpenMP threads of this process and returns it: OMP_NUM_THREADS when set, else this rank's share of
// the machine's cores (and never more than this process may run on).
int use_threads(int ranks_on_this_node);

// Returns a sentence where this process has more threads than cores that it may run on, as under `mpirun`, which binds
// each rank to one core; "" elsewhere.
std::string crowded_threads(int threads);

// Throws Error where OMP_NUM_THREADS is not a number of threads of some machine.
void check_threads();

// Throw Error where this process's limit is below what the program needs: its stack, for all commands; open files, for
// training.
void check_stack();
void check_open_files();

// Returns "Intel(R) Xeon(R) Platinum 8480+".
std::string processor_name();

int64_t physical_memory();  // bytes

// Returns the free bytes of /dev/shm, by which processes share memory, or 0 where there is none.
int64_t free_shared_memory();

// Returns the bytes of this process in physical memory, mapped files included.
int64_t resident_memory();

// Returns the command that started this process, quoted for a shell and without the launcher's part (`mpirun -n 2`), or
// "" where that is unknown.
std::string command_line();

// Returns a text that is equal for all processes of this machine since its start, and for no others.
std::string machine_id();

}  // namespace megalith
