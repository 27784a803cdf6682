// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace vocabpipe::tool {

/// Whether a launcher started this process that MPI makes a world with: mpirun, or srun with PMIx.
[[nodiscard]] bool started_by_mpirun();

/// Whether it is Open MPI 5's mpirun, which kills half a second after SIGTERM, whatever is set.
[[nodiscard]] bool started_by_open_mpi_5();

/// UsageError with the right command line if the environment shows that torchrun, srun without PMIx
/// or another MPI's mpiexec started several processes: each would be a world of its own.
void check_launcher(bool ranks_are_threads);

/// Whether this process is the first that a launcher started, or the only one. With mpirun's "A :
/// B", each program has a first process.
[[nodiscard]] bool first_of_launch();

}  // namespace vocabpipe::tool
