// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/runtime/transport/message_transport.hpp"

#include <memory>

namespace vocabpipe::mpi {

/// This process's rank among those that mpirun started. Initialises MPI if necessary; the session
/// that did so finalises it unless abort() was called, so it must be destroyed last.
class Session {
public:
    Session();
    ~Session();
    Session(const Session&) = delete;
    Session& operator=(const Session&) = delete;

    [[nodiscard]] int rank() const;
    [[nodiscard]] int size() const;
    /// The lowest rank on this host, according to the launcher. Collective.
    [[nodiscard]] int node() const;
    [[nodiscard]] std::unique_ptr<Transport> make_transport();
    /// MPI_Abort: the launcher ends the other ranks and returns `exit_code`.
    void abort(int exit_code) noexcept;

private:
    struct State;
    std::unique_ptr<State> state_;
};

}  // namespace vocabpipe::mpi
