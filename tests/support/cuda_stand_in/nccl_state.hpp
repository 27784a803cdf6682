// SPDX-License-Identifier: Apache-2.0
// What the stand-in NCCL knows: communicators, the operations issued on them, who meets whom.
//
// Ranks are threads of one process, so one lock serves everything. Operations are matched when the
// host issues them (the n-th send of a pair with its n-th receive, the n-th collective of a
// communicator on every rank), which finds most broken rules before anything runs; the streams then
// carry them out.
#pragma once

#include <nccl.h>

#include "tests/support/cuda_stand_in/race_checker.hpp"

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace cuda_stand_in::nccl {

enum class Kind : uint8_t {
    send,
    receive,
    broadcast,
    all_gather,
    reduce,
    all_reduce,
    reduce_scatter
};

struct Clique;
struct Launch;

/// One operation as one rank issued it.
struct Call {
    Kind kind = Kind::send;
    const void* send = nullptr;
    void* receive = nullptr;
    size_t count = 0;
    ncclDataType_t type = ncclInt8;
    ncclRedOp_t op = ncclSum;
    int other = -1;  ///< peer or root; -1 where there is none
    ncclComm* comm = nullptr;
    cudaStream_t stream = nullptr;
    uint64_t number = 0;  ///< of this rank's operations on the communicator, from 1
};
/// "operation 3 of rank 1 on 'forward' (send of 16 x int8 to rank 2)".
[[nodiscard]] std::string text_of(const Call& call);

/// All ends of one message or collective. Slots: 0 the send, 1 the receive; ranks for collectives.
struct Meeting {
    struct Slot {
        bool issued = false;
        bool arrived = false;  ///< its stream has reached it
        int rank = -1;         ///< known before it is issued
        Launch* launch = nullptr;
        bool at_head = false;  ///< for the model of serial launches
        Call call;
    };
    std::shared_ptr<Clique> clique;
    std::vector<Slot> slots;
    bool message = false;  ///< send and receive
    bool moving = false;   ///< all have arrived: the last of them moves the bytes
    bool moved = false;    ///< the bytes are where they belong
    /// For ThreadSanitizer: orders what each participant did before behind what any does after.
    std::atomic<uint32_t> order{0};
    bool retired = false;  ///< in the model of serial launches
    [[nodiscard]] bool all_issued() const;
    [[nodiscard]] bool all_arrived() const;
    /// The first slot that was issued.
    [[nodiscard]] const Call& first() const;
};

/// The calls that one group makes on one communicator: what NCCL launches as one kernel.
struct Launch {
    ncclComm* comm = nullptr;
    int device = 0;
    std::vector<std::pair<std::shared_ptr<Meeting>, size_t>> ends;  ///< meeting, own slot
    std::vector<cudaStream_t> streams;                              ///< distinct
    size_t streams_reached = 0;
    bool queued = false;   ///< handed to its streams
    bool started = false;  ///< or never going to
    bool done = false;
    size_t unretired = 0;  ///< in the model of serial launches
};

/// A communicator over all its ranks.
struct Clique {
    std::string name;
    int size = 0;
    std::vector<ncclComm*> members;  ///< by rank; null until it has joined
    /// [source, destination]: messages of which one end is missing, in order.
    std::map<std::pair<int, int>, std::deque<std::shared_ptr<Meeting>>> messages;
    std::deque<std::shared_ptr<Meeting>> collectives;  ///< of which a rank is missing
    uint64_t first_collective = 0;                     ///< number of the first in `collectives`
    std::set<std::pair<int, int>> connected;           ///< [source, destination]; {-1, -1}: rings
    bool broken = false;   ///< a rule was broken: nothing more runs here
    bool aborted = false;  ///< by some rank: no more conclusions about order
    int finalized = 0;
    std::string error;                                            ///< why initialisation failed
    std::map<uint64_t, std::vector<std::pair<int, int>>> splits;  ///< number: [rank] color, key
    std::map<std::pair<uint64_t, int>, std::shared_ptr<Clique>> children;  ///< number, color
    std::map<uint64_t, std::vector<bool>> split_joined;
};

/// What a non-blocking call still has to do, done by polling.
struct Job {
    enum class What : uint8_t { initialise, split, launch, finalize } what = What::launch;
    int polls = 0;
    std::vector<std::shared_ptr<Launch>> launches;
    std::vector<ncclComm*> comms;  ///< all of the group
    uint64_t split_number = 0;     ///< of split
    ncclComm_t* split_result = nullptr;
    ncclConfig_t split_config{};
    std::string split_name;
};

struct Device {
    std::thread::id owner;  ///< that is between two ends of a group
    int depth = 0;
    std::deque<std::shared_ptr<Launch>> serial;     ///< the model: first in, first to retire
    std::deque<std::shared_ptr<Launch>> unstarted;  ///< in order of launch
};

/// Everything, once per process: NCCL itself is such a thing.
struct Library {
    std::mutex mutex;
    std::condition_variable_any changed;
    std::vector<std::unique_ptr<ncclComm>> comms;  ///< never freed: a use after the end is seen
    std::map<uint64_t, std::shared_ptr<Clique>> by_id;
    std::map<int, Device> devices;
    uint64_t next_id = 1;
};
[[nodiscard]] Library& library();

/// The library's lock. ThreadSanitizer does not see it (race_checker.hpp): calls of two ranks are
/// ordered by the operations that they share, not by the stand-in's bookkeeping.
struct Lock {
    Unseen unseen;
    std::unique_lock<std::mutex> lock{library().mutex};
};

// All of these want the library's lock held.

/// Finds or makes the meeting of a call and compares it with what others said; breaks the rule if
/// they differ and then returns null.
[[nodiscard]] std::shared_ptr<Meeting> meet(const Call& call, size_t& slot);
/// Adds a launch to the model of serial launches: every device runs its launches one at a time, in
/// the order issued, each until all its ends have met. Breaks the rule if devices wait in a circle.
void model_launch(const std::shared_ptr<Launch>& launch);
/// What an abort or a broken rule takes out of the model.
void forget_in_model(Clique& clique);
/// Ends everything that waits in a communicator, after a broken rule.
void give_up(Clique& clique);

using Launches = std::vector<std::shared_ptr<Launch>>;
/// Hands launches to their streams. Wants the lock NOT held.
void queue(Launches launches);

/// Marks a communicator as aborted: its own kernels that run end, those that have not started will
/// as soon as they do.
void tell_to_end(ncclComm& comm);
/// Waits until streams have passed everything that was enqueued on the communicators, started or
/// not, as ncclCommAbort does before it frees what they use. Breaks the rule if that takes too
/// long: then a kernel waits behind another that nobody has told to end.
void wait_until_drained(Lock& guard, const std::vector<ncclComm*>& aborted);

}  // namespace cuda_stand_in::nccl

/// One rank's end of a communicator.
struct ncclComm {
    enum class State : uint8_t { ready, in_progress, failed, finalized, destroyed, aborted };
    State state = State::in_progress;
    std::shared_ptr<cuda_stand_in::nccl::Clique> clique;
    int rank = 0;
    int device = 0;
    bool blocking = true;
    int max_ctas = 0;                               ///< multiprocessors that a launch holds
    std::shared_ptr<cuda_stand_in::nccl::Job> job;  ///< of a non-blocking call in progress
    uint64_t operations = 0;
    uint64_t collectives = 0;
    uint64_t splits = 0;
    int enqueued = 0;  ///< launches that streams have not passed, one for each of its streams
    std::deque<std::shared_ptr<cuda_stand_in::nccl::Launch>> outstanding;
    std::string last_error;
    [[nodiscard]] bool gone() const { return state == State::destroyed || state == State::aborted; }
};
