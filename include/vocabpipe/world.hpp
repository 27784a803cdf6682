// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vocabpipe/error.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace vocabpipe {

class AbandonLine;
class TileMail;
class Transport;

/// When a waiting rank gives up.
struct WaitOptions {
    /// No progress for this long is an error (exit code 5) naming who waited at which action for
    /// whom.
    double timeout_seconds = 600;
    /// Polled while waiting: true ends the wait with the same error (SIGTERM from a launcher that
    /// lost a rank). Empty: never.
    std::function<bool()> interrupted;
};

class Communicator;

/// How the processes of one mpirun communicate.
struct MpiOptions {
    /// Ranks of one host communicate through shared memory if /dev/shm has room for it; else all
    /// communicate through MPI.
    bool shared_memory = true;
    /// Called on one rank with a one-line message if /dev/shm has no room. Empty: no message.
    std::function<void(const std::string&)> note;
    /// Called on every rank with a communicator over MPI only, before the ranks of a host open
    /// shared memory. An exception from it, such as an AgreedError about flags that differ, ends
    /// the run.
    std::function<void(Communicator&)> before_connecting;
};

/// An error that every rank of the world throws (Communicator::agree), so that all end alike and
/// only one needs to report it.
class AgreedError : public Error {
public:
    using Error::Error;
};

/// One rank's end of a world. Used by the rank's thread only.
class Communicator {
public:
    /// `transport` connects it to its peers.
    Communicator(std::unique_ptr<Transport> transport, WaitOptions wait);
    ~Communicator();
    Communicator(Communicator&&) noexcept;             ///< the source has no peers any more
    Communicator& operator=(Communicator&&) noexcept;  ///< as above

    /// This rank, from 0.
    [[nodiscard]] int rank() const;
    /// Ranks of the world.
    [[nodiscard]] int size() const;
    /// Moves the bytes; for the executor.
    [[nodiscard]] Transport& transport() { return *transport_; }
    /// Lets the ranks abandon a step together; for the executor.
    [[nodiscard]] AbandonLine& abandon_line();
    /// Carries the messages of open_tile_link() and open_symmetric_memory().
    [[nodiscard]] TileMail& tile_mail();
    /// The options of the world, with the timeout of set_timeout() if it was called.
    [[nodiscard]] const WaitOptions& wait_options() const { return wait_; }
    /// This rank's deadline from now on: the first step may take much longer than the others.
    void set_timeout(double seconds) { wait_.timeout_seconds = seconds; }

    // Set-up and agreement, outside of steps: every rank calls them in the same order; blocking,
    // with the deadline of the wait options.

    /// Returns the contributions of all ranks, by rank.
    [[nodiscard]] std::vector<std::vector<std::byte>> all_gather(std::span<const std::byte> mine);
    /// Sends to_each[r], of any length, to each rank r; returns what every rank sent to this one,
    /// by rank.
    [[nodiscard]] std::vector<std::vector<std::byte>> all_to_all(
        std::span<const std::vector<std::byte>> to_each);
    /// Returns when every rank has called it.
    void barrier();
    /// Runs `work` on every rank; if it throws anywhere, throws the error of the lowest such rank
    /// as AgreedError everywhere.
    void agree(const std::function<void()>& work);

private:
    /// Waits for started transfers.
    void wait_for(std::span<const uint32_t> tickets);

    std::unique_ptr<Transport> transport_;
    std::unique_ptr<AbandonLine> abandon_line_;  ///< null until first used
    std::unique_ptr<TileMail> tile_mail_;        ///< null until first used
    WaitOptions wait_;
};

/// The ranks of a run: threads of this process, or the processes that mpirun started. Several
/// worlds may live in one process; nothing is global.
class World {
public:
    /// `ranks` threads of this process.
    [[nodiscard]] static World threads(int ranks, WaitOptions wait = {});
    /// The processes of this mpirun; initialises MPI if necessary. Throws UsageError in a build
    /// without MPI.
    [[nodiscard]] static World mpi(WaitOptions wait = {}, MpiOptions options = {});

    World(World&&) noexcept;             ///< the source has no ranks any more
    World& operator=(World&&) noexcept;  ///< as above
    ~World();

    /// Ranks of the world, in all processes.
    [[nodiscard]] int size() const;
    /// Calls `body` once for every rank that this process owns. If it throws on one rank, the other
    /// ranks of the process are woken with a CommunicationError and the first exception is
    /// rethrown.
    void run(const std::function<void(Communicator&)>& body);
    /// run() for main(): prints exceptions as "PROGRAM: error: ...", once if all ranks agree on it,
    /// and ends the other processes if only this one fails. Returns the exit code.
    int run_program(const char* program, const std::function<void(Communicator&)>& body);
    /// Tells the launcher that only this process failed, so that it ends the others (MPI_Abort); in
    /// a world of threads it does nothing. Errors that all ranks agreed on need no abort.
    void abort(int exit_code) noexcept;

    class Implementation;

private:
    explicit World(std::unique_ptr<Implementation> implementation);
    std::unique_ptr<Implementation> implementation_;
};

}  // namespace vocabpipe
