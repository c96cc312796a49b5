// The machine that a rank runs on: threads and memory.
#pragma once

#include <cstdint>
#include <string>

namespace megalith {

// Sets the number of OpenMP threads of this process and returns it: OMP_NUM_THREADS when set, else the cores of the
// machine dealt out among its ranks (and never more than this process may run on).
int use_threads(int ranks_on_this_node);

// Error where OMP_NUM_THREADS is no number of threads, or of more than any machine has cores for.
void check_threads();

// Errors where a limit of this process is below what the program takes: its stack, whoever calls; open files, of a
// training.
void check_stack();
void check_open_files();

// As the system names it: "Intel(R) Xeon(R) Platinum 8480+".
std::string processor_name();

// Bytes of physical memory.
int64_t physical_memory();

// Bytes that are free in /dev/shm, by which processes of this machine share memory; 0: there is none.
int64_t free_shared_memory();

// Bytes of this process that lie in physical memory now, files that it has mapped included.
int64_t resident_memory();

// The command that started this process, as a shell takes it; empty where the system does not say it. A launcher's own
// part, as `mpirun -n 2`, is not in it.
std::string command_line();

// The same for all processes of a machine, and for no other's: its name and when it was started.
std::string machine_id();

}  // namespace megalith
