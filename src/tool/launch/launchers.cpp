// SPDX-License-Identifier: Apache-2.0
#include "src/tool/launch/launchers.hpp"

#include "vocabpipe/error.hpp"

#include <array>
#include <cstdlib>
#include <sstream>
#include <string>

namespace vocabpipe::tool {

namespace {

/// The environment of a launcher that does not work with our MPI.
struct Launcher {
    const char* name;
    const char* size;       ///< variable with the number of processes
    const char* rank;       ///< variable with this process's rank
    bool tells_its_script;  ///< a batch script has these variables, too, and may run threads
    const char* instead;    ///< command to type in its place, before "-n SIZE" and the program
};

constexpr std::array<Launcher, 4> kLaunchers{{
    {"torchrun", "WORLD_SIZE", "RANK", false, "mpirun"},
    {"srun", "SLURM_STEP_NUM_TASKS", "SLURM_PROCID", false, "srun --mpi=pmix"},
    {"Slurm", "SLURM_NTASKS", "SLURM_PROCID", true, "srun --mpi=pmix"},
    {"mpiexec of another MPI", "PMI_SIZE", "PMI_RANK", false, "Open MPI's mpirun"},
}};

int number_in(const char* variable) {
    const char* const text = std::getenv(variable);
    return text == nullptr ? -1 : std::atoi(text);
}

}  // namespace

bool started_by_mpirun() {
    return std::getenv("OMPI_COMM_WORLD_SIZE") != nullptr || std::getenv("PMIX_RANK") != nullptr;
}

bool started_by_open_mpi_5() {
    return std::getenv("PRTE_LAUNCHED") != nullptr;
}

void check_launcher(bool ranks_are_threads) {
    // Threads within a process of mpirun: check_launch() has a message for them.
    if (ranks_are_threads ? std::getenv("OMPI_COMM_WORLD_SIZE") != nullptr : started_by_mpirun()) {
        return;
    }
    for (const Launcher& launcher : kLaunchers) {
        const int processes = number_in(launcher.size);
        if (processes < 2) continue;
        if (ranks_are_threads &&
            (launcher.tells_its_script || std::getenv(launcher.rank) == nullptr)) {
            continue;
        }
        throw UsageError(std::string(launcher.size) + "=" + std::to_string(processes) + ": " +
                         launcher.name + " started " + std::to_string(processes) +
                         " processes, and each would work by itself; type " + launcher.instead +
                         " -n " + std::to_string(processes) + " and this command, or unset " +
                         launcher.size);
    }
}

bool first_of_launch() {
    const char* rank = std::getenv("OMPI_COMM_WORLD_RANK");
    if (rank == nullptr) rank = std::getenv("PMIX_RANK");
    for (const Launcher& launcher : kLaunchers) {
        if (rank == nullptr && number_in(launcher.size) > 1) rank = std::getenv(launcher.rank);
    }
    if (rank == nullptr) return true;
    const char* parts = std::getenv("OMPI_APP_CTX_NUM_PROCS");  // of "mpirun -np 1 A : -np 2 B"
    std::istringstream in(parts == nullptr ? "" : parts);
    int first = 0;
    for (int ranks = 0; in >> ranks && first < std::atoi(rank);) first += ranks;
    return first == std::atoi(rank);
}

}  // namespace vocabpipe::tool
