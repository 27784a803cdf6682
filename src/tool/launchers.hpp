// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace vocabpipe::tool {

/// Whether a launcher started this process with which MPI makes a world: mpirun, or srun with PMIx.
[[nodiscard]] bool started_by_mpirun();

/// Whether that is Open MPI 5's mpirun, which kills half a second after SIGTERM whatever is set.
[[nodiscard]] bool started_by_open_mpi_5();

/// Throws UsageError, with the line to type, where the environment says that torchrun, srun without
/// PMIx or another MPI's mpiexec started several processes: each would be a world of its own.
void check_launcher(bool ranks_are_threads);

/// Whether this process is the first of those that a launcher started, or alone. Of mpirun's
/// programs ("A : B") each has a first one.
[[nodiscard]] bool first_of_launch();

}  // namespace vocabpipe::tool
