// SPDX-License-Identifier: Apache-2.0
// The C interface of the stand-in NCCL.
#include "tests/support/cuda_stand_in/nccl_elements.hpp"
#include "tests/support/cuda_stand_in/nccl_rules.hpp"
#include "tests/support/cuda_stand_in/nccl_state.hpp"
#include "tests/support/cuda_stand_in/stream_queue.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

namespace cuda_stand_in::nccl {

namespace {

constexpr int kWholeClique = -1;  // as both ends of a connection: the rings of collectives

/// The calling thread's open group.
struct Group {
    int depth = 0;
    std::vector<Call> calls;
    ncclResult_t error = ncclSuccess;
    std::set<int> devices;           ///< claimed for this thread
    std::vector<ncclComm*> aborted;  ///< whose end the group's end waits for
};
thread_local Group group;
thread_local std::string last_error;

ncclResult_t refuse(ncclResult_t result, const std::string& text, ncclComm* comm = nullptr) {
    last_error = text;
    if (comm != nullptr) comm->last_error = text;
    return result;
}

std::string who(const ncclComm& comm) {
    return "rank " + std::to_string(comm.rank) + " of '" + comm.clique->name + "'";
}

/// Whether a communicator can take a call now; ncclSuccess if so.
ncclResult_t ready(ncclComm* comm, const char* call) {
    if (comm == nullptr)
        return refuse(ncclInvalidArgument, std::string(call) + ": no communicator");
    if (comm->gone()) {
        break_rule("a communicator is gone after its destruction or abort: " + std::string(call) +
                   " by " + who(*comm));
        return ncclInvalidArgument;
    }
    if (comm->state == ncclComm::State::finalized) {
        break_rule("a finalized communicator can only be destroyed: " + std::string(call) + " by " +
                   who(*comm));
        return ncclInvalidUsage;
    }
    if (comm->clique->broken) return refuse(ncclInternalError, "a rule was broken", comm);
    if (comm->state == ncclComm::State::failed) return ncclInvalidUsage;
    if (comm->state == ncclComm::State::in_progress) {
        return refuse(ncclInvalidArgument,
                      std::string(call) + " by " + who(*comm) +
                          ": the previous call is still in progress; poll ncclCommGetAsyncError",
                      comm);
    }
    return ncclSuccess;
}

void claim(Device& device, int number, const ncclComm& comm) {
    const std::thread::id self = std::this_thread::get_id();
    if (device.depth > 0 && device.owner != self) {
        break_rule("the calls on one device must come from one thread: another thread issues on '" +
                   comm.clique->name + "' while a group is open on device " +
                   std::to_string(number));
        return;
    }
    if (group.devices.insert(number).second) {
        device.owner = self;
        ++device.depth;
    }
}

void release_devices() {
    for (const int number : group.devices) {
        Device& device = library().devices[number];
        if (--device.depth == 0) device.owner = {};
    }
    group.devices.clear();
}

// --- connections ---------------------------------------------------------------------------------

std::pair<int, int> connection(const Meeting& meeting) {
    if (meeting.message) return {meeting.slots[0].rank, meeting.slots[1].rank};
    return {kWholeClique, kWholeClique};
}

/// A connection is made when both ends first use it.
bool connected(const Launches& launches) {
    for (const std::shared_ptr<Launch>& launch : launches) {
        for (const auto& [meeting, own] : launch->ends) {
            if (meeting->clique->connected.contains(connection(*meeting))) continue;
            if (!meeting->all_issued()) return false;
        }
    }
    for (const std::shared_ptr<Launch>& launch : launches) {
        for (const auto& [meeting, own] : launch->ends) {
            meeting->clique->connected.insert(connection(*meeting));
        }
    }
    return true;
}

bool over(const Launches& launches) {
    return std::any_of(launches.begin(), launches.end(), [](const auto& launch) {
        return launch->comm->gone() || launch->comm->clique->broken;
    });
}

// --- groups --------------------------------------------------------------------------------------

/// One launch for every communicator of the group, in the order in which they first appear.
Launches make_launches(const std::vector<Call>& calls) {
    Launches launches;
    for (const Call& call : calls) {
        auto at = std::find_if(launches.begin(), launches.end(),
                               [&](const auto& launch) { return launch->comm == call.comm; });
        if (at == launches.end()) {
            launches.push_back(std::make_shared<Launch>());
            at = launches.end() - 1;
            (*at)->comm = call.comm;
            (*at)->device = call.comm->device;
        }
        Launch& launch = **at;
        if (std::find(launch.streams.begin(), launch.streams.end(), call.stream) ==
            launch.streams.end()) {
            launch.streams.push_back(call.stream);
        }
        size_t slot = 0;
        if (call.comm->clique->broken) continue;
        if (const auto meeting = meet(call, slot)) launch.ends.emplace_back(meeting, slot);
    }
    for (const std::shared_ptr<Launch>& launch : launches) {
        launch->comm->outstanding.push_back(launch);
        library().devices[launch->device].unstarted.push_back(launch);
        model_launch(launch);
    }
    return launches;
}

bool launching(const ncclComm& comm) {
    return !comm.gone() && !comm.clique->broken && comm.job && comm.job->what == Job::What::launch;
}

/// Another communicator of the device that has not launched yet what was issued before: which of
/// the two comes first on the device is then a matter of luck.
const ncclComm* overtaken(const Call& call) {
    for (const auto& comm : library().comms) {
        if (comm.get() != call.comm && comm->device == call.comm->device && launching(*comm)) {
            return comm.get();
        }
    }
    return nullptr;
}

/// Gives what can go to its streams at once; the caller queues it without the lock.
ncclResult_t launch_calls(Lock& guard, const std::vector<Call>& calls, Launches& to_queue) {
    if (calls.empty()) return ncclSuccess;
    const bool blocking = calls.front().comm->blocking;
    for (const Call& call : calls) {
        if (call.comm->blocking != blocking) {
            return refuse(ncclInvalidArgument,
                          "blocking and non-blocking communicators in one group", call.comm);
        }
        if (const ncclComm* other = overtaken(call)) {
            break_rule(
                "all ranks must launch in one order over all communicators: " + text_of(call) +
                " is issued while " + who(*other) +
                " is still in progress on the same device; poll ncclCommGetAsyncError first");
        }
    }
    const Launches launches = make_launches(calls);
    if (over(launches)) return refuse(ncclInternalError, "a rule was broken", calls.front().comm);
    if (blocking) {
        library().changed.notify_all();
        library().changed.wait(guard.lock, [&] { return over(launches) || connected(launches); });
        if (over(launches)) return ncclInternalError;
        to_queue = launches;
        return ncclSuccess;
    }
    const bool fresh = std::any_of(launches.begin(), launches.end(), [](const auto& launch) {
        return std::any_of(launch->ends.begin(), launch->ends.end(), [](const auto& end) {
            return !end.first->clique->connected.contains(connection(*end.first));
        });
    });
    const auto job = std::make_shared<Job>();
    job->polls = fresh ? kPollsToConnect : kPollsToLaunch;
    job->launches = launches;
    for (const std::shared_ptr<Launch>& launch : launches) {
        job->comms.push_back(launch->comm);
        launch->comm->job = job;
        launch->comm->state = ncclComm::State::in_progress;
    }
    return ncclInProgress;
}

ncclResult_t issue_locked(Lock& guard, Call call, const char* name, Launches& to_queue) {
    ncclResult_t result = ready(call.comm, name);
    const bool has_root = call.kind == Kind::broadcast || call.kind == Kind::reduce;
    const bool message = call.kind == Kind::send || call.kind == Kind::receive;
    const bool reduces = call.kind == Kind::reduce || call.kind == Kind::all_reduce ||
                         call.kind == Kind::reduce_scatter;
    if (result == ncclSuccess) {
        ncclComm& comm = *call.comm;
        if ((has_root || message) && (call.other < 0 || call.other >= comm.clique->size)) {
            result = refuse(ncclInvalidArgument,
                            std::string(name) + ": rank " + std::to_string(call.other) +
                                " is none of " + std::to_string(comm.clique->size),
                            &comm);
        } else if (size_of(call.type) == 0 || (reduces && !can_reduce(call.type))) {
            result = refuse(ncclInvalidArgument, std::string(name) + ": type " + name_of(call.type),
                            &comm);
        }
    }
    if (result != ncclSuccess) {
        if (group.depth > 0) group.error = result;
        return result;
    }
    call.number = ++call.comm->operations;
    claim(library().devices[call.comm->device], call.comm->device, *call.comm);
    if (group.depth > 0) {
        group.calls.push_back(call);
        return ncclSuccess;
    }
    result = launch_calls(guard, {call}, to_queue);
    release_devices();
    return result;
}

ncclResult_t issue(const Call& call, const char* name) {
    Launches to_queue;
    ncclResult_t result = ncclSuccess;
    {
        Lock guard;
        result = issue_locked(guard, call, name, to_queue);
    }
    queue(std::move(to_queue));
    return result;
}

// --- communicators -------------------------------------------------------------------------------

ncclComm* new_comm(bool blocking) {
    library().comms.push_back(std::make_unique<ncclComm>());
    ncclComm* comm = library().comms.back().get();
    cudaGetDevice(&comm->device);
    comm->blocking = blocking;
    return comm;
}

bool blocking_of(const ncclConfig_t& config) {
    return config.blocking != 0;  // NCCL_CONFIG_UNDEF_INT: blocking
}

int max_ctas_of(const ncclConfig_t* config) {
    constexpr int unlimited = 32;  // about what NCCL takes of an H100 by itself
    return config != nullptr && config->maxCTAs > 0 ? config->maxCTAs : unlimited;
}

bool complete(const Clique& clique) {
    return std::none_of(clique.members.begin(), clique.members.end(),
                        [](const ncclComm* member) { return member == nullptr; });
}

std::string duplicate_device(const Clique& clique) {
    for (int a = 0; a < clique.size; ++a) {
        for (int b = 0; b < a; ++b) {
            const int device = clique.members[static_cast<size_t>(a)]->device;
            if (device != clique.members[static_cast<size_t>(b)]->device) continue;
            return "Duplicate GPU detected : rank " + std::to_string(b) + " and rank " +
                   std::to_string(a) + " both on CUDA device " + std::to_string(device);
        }
    }
    return "";
}

void join(const std::shared_ptr<Clique>& clique, ncclComm* comm, int rank) {
    comm->clique = clique;
    comm->rank = rank;
    clique->members[static_cast<size_t>(rank)] = comm;
    if (complete(*clique)) clique->error = duplicate_device(*clique);
    library().changed.notify_all();
}

/// Ends an initialisation whose ranks have all come.
ncclResult_t end_initialisation(ncclComm* comm) {
    if (comm->clique->error.empty()) {
        comm->state = ncclComm::State::ready;
        return ncclSuccess;
    }
    comm->state = ncclComm::State::failed;
    return refuse(ncclInvalidUsage, comm->clique->error, comm);
}

bool split_is_complete(const Clique& parent, uint64_t number) {
    const auto at = parent.split_joined.find(number);
    return at != parent.split_joined.end() &&
           std::all_of(at->second.begin(), at->second.end(), [](bool joined) { return joined; });
}

/// Makes this rank's end of its child.
ncclComm* end_split(ncclComm* parent, uint64_t number, const ncclConfig_t& config,
                    const std::string& name) {
    const std::vector<std::pair<int, int>>& choices = parent->clique->splits[number];
    const int color = choices[static_cast<size_t>(parent->rank)].first;
    if (color == NCCL_SPLIT_NOCOLOR) return nullptr;
    std::vector<std::pair<int, int>> order;  // key, rank in the parent
    for (size_t rank = 0; rank < choices.size(); ++rank) {
        if (choices[rank].first == color) {
            order.emplace_back(choices[rank].second, static_cast<int>(rank));
        }
    }
    std::sort(order.begin(), order.end());
    std::shared_ptr<Clique>& clique = parent->clique->children[{number, color}];
    if (!clique) {
        clique = std::make_shared<Clique>();
        clique->size = static_cast<int>(order.size());
        clique->members.resize(order.size());
        clique->name =
            name.empty() ? parent->clique->name + " split " + std::to_string(number) : name;
    }
    ncclComm* comm = new_comm(blocking_of(config));
    comm->device = parent->device;
    comm->max_ctas = max_ctas_of(&config);
    const auto place = std::find_if(order.begin(), order.end(),
                                    [&](const auto& one) { return one.second == parent->rank; });
    join(clique, comm, static_cast<int>(place - order.begin()));
    comm->state = ncclComm::State::ready;
    return comm;
}

bool quiescent(const ncclComm& comm) {
    return comm.outstanding.empty() && comm.clique->finalized == comm.clique->size;
}

/// Whether what a job waits for has happened.
bool can_end(const Job& job, const ncclComm& comm) {
    switch (job.what) {
        case Job::What::initialise:
            return complete(*comm.clique);
        case Job::What::split:
            return split_is_complete(*comm.clique, job.split_number);
        case Job::What::launch:
            return over(job.launches) || connected(job.launches);
        case Job::What::finalize:
            return quiescent(comm);
    }
    return false;
}

bool waits_for_room(const Job& job) {
    return std::any_of(job.launches.begin(), job.launches.end(), [](const auto& launch) {
        return std::any_of(launch->streams.begin(), launch->streams.end(), would_block);
    });
}

/// One poll of a non-blocking call.
ncclResult_t poll(ncclComm* comm, Launches& to_queue) {
    const std::shared_ptr<Job> job = comm->job;
    if (job->polls > 0) {
        --job->polls;
        return ncclInProgress;
    }
    // NCCL's own thread launches: it blocks on a full stream, and the caller sees no end.
    if (waits_for_room(*job)) return ncclInProgress;
    if (!can_end(*job, *comm)) return ncclInProgress;
    comm->job = nullptr;
    switch (job->what) {
        case Job::What::initialise:
            return end_initialisation(comm);
        case Job::What::split:
            *job->split_result =
                end_split(comm, job->split_number, job->split_config, job->split_name);
            comm->state = ncclComm::State::ready;
            return ncclSuccess;
        case Job::What::finalize:
            comm->state = ncclComm::State::finalized;
            return ncclSuccess;
        case Job::What::launch:
            break;
    }
    for (ncclComm* member : job->comms) {
        member->job = nullptr;
        if (!member->gone()) member->state = ncclComm::State::ready;
    }
    if (over(job->launches)) return ncclInternalError;
    to_queue = job->launches;
    return ncclSuccess;
}

/// Begins a call that other ranks take part in: polled, or waited for.
ncclResult_t begin(Lock& guard, ncclComm* comm, const std::shared_ptr<Job>& job) {
    job->comms = {comm};
    comm->job = job;
    comm->state = ncclComm::State::in_progress;
    library().changed.notify_all();
    if (!comm->blocking) {
        job->polls = kPollsToConnect;
        return ncclInProgress;
    }
    library().changed.wait(guard.lock, [&] { return comm->gone() || can_end(*job, *comm); });
    if (comm->gone()) return ncclInternalError;
    Launches none;
    return poll(comm, none);
}

bool initialised(const ncclConfig_t* config) {
    return config == nullptr || config->magic == 0xcafebeef;
}

}  // namespace

int launches_in_progress(int device) {
    const Lock guard;
    return static_cast<int>(std::ranges::count_if(library().comms, [&](const auto& comm) {
        return comm->device == device && launching(*comm);
    }));
}

}  // namespace cuda_stand_in::nccl

using namespace cuda_stand_in::nccl;

ncclResult_t ncclGetVersion(int* version) {
    *version = NCCL_VERSION_CODE;
    return ncclSuccess;
}

const char* ncclGetErrorString(ncclResult_t result) {
    switch (result) {
        case ncclSuccess:
            return "no error";
        case ncclUnhandledCudaError:
            return "unhandled cuda error";
        case ncclSystemError:
            return "unhandled system error";
        case ncclInternalError:
            return "internal error";
        case ncclInvalidArgument:
            return "invalid argument";
        case ncclInvalidUsage:
            return "invalid usage";
        case ncclRemoteError:
            return "remote process exited or there was a network error";
        case ncclInProgress:
            return "NCCL operation in progress";
        default:
            return "unknown result code";
    }
}

const char* ncclGetLastError(ncclComm_t) {
    return last_error.c_str();
}

ncclResult_t ncclGetUniqueId(ncclUniqueId* uniqueId) {
    const Lock guard;
    const uint64_t id = library().next_id++;
    std::memset(uniqueId, 0, sizeof *uniqueId);
    std::memcpy(uniqueId->internal, &id, sizeof id);
    return ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int nranks, ncclUniqueId commId, int rank,
                                    ncclConfig_t* config) {
    if (!initialised(config) || nranks < 1 || rank < 0 || rank >= nranks) {
        return refuse(ncclInvalidArgument, "ncclCommInitRankConfig: rank " + std::to_string(rank) +
                                               " of " + std::to_string(nranks) +
                                               ", or a config without its initializer");
    }
    uint64_t id = 0;
    std::memcpy(&id, commId.internal, sizeof id);
    Lock guard;
    std::shared_ptr<Clique>& clique = library().by_id[id];
    if (!clique) {
        clique = std::make_shared<Clique>();
        clique->size = nranks;
        clique->members.resize(static_cast<size_t>(nranks));
        clique->name = config != nullptr && config->commName != nullptr
                           ? config->commName
                           : "communicator " + std::to_string(id);
    }
    if (clique->size != nranks || clique->members[static_cast<size_t>(rank)] != nullptr) {
        break_rule("every rank joins a communicator once, with the same number of ranks: rank " +
                   std::to_string(rank) + " of " + std::to_string(nranks) + " joins '" +
                   clique->name + "' of " + std::to_string(clique->size));
        return ncclInvalidUsage;
    }
    *comm = new_comm(config == nullptr || blocking_of(*config));
    (*comm)->max_ctas = max_ctas_of(config);
    join(clique, *comm, rank);
    const auto job = std::make_shared<Job>();
    job->what = Job::What::initialise;
    return begin(guard, *comm, job);
}

ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t* newcomm,
                           ncclConfig_t* config) {
    Lock guard;
    if (const ncclResult_t result = ready(comm, "ncclCommSplit"); result != ncclSuccess) {
        return result;
    }
    if (!initialised(config)) return refuse(ncclInvalidArgument, "ncclCommSplit: config", comm);
    if (!comm->outstanding.empty()) {
        break_rule("nothing may be outstanding on a communicator that is split: " + who(*comm) +
                   " has " + std::to_string(comm->outstanding.size()) + " operations under way");
        return ncclInvalidUsage;
    }
    Clique& clique = *comm->clique;
    const auto job = std::make_shared<Job>();
    job->what = Job::What::split;
    job->split_number = comm->splits++;
    job->split_result = newcomm;
    if (config != nullptr) {
        job->split_config = *config;
        if (config->commName != nullptr) job->split_name = config->commName;
    } else {
        job->split_config.blocking = comm->blocking ? 1 : 0;
    }
    *newcomm = nullptr;  // until the split is complete
    auto& choices = clique.splits[job->split_number];
    auto& joined = clique.split_joined[job->split_number];
    choices.resize(static_cast<size_t>(clique.size));
    joined.resize(static_cast<size_t>(clique.size), false);
    choices[static_cast<size_t>(comm->rank)] = {color, key};
    joined[static_cast<size_t>(comm->rank)] = true;
    return begin(guard, comm, job);
}

ncclResult_t ncclCommFinalize(ncclComm_t comm) {
    Lock guard;
    if (const ncclResult_t result = ready(comm, "ncclCommFinalize"); result != ncclSuccess) {
        return result;
    }
    ++comm->clique->finalized;
    const auto job = std::make_shared<Job>();
    job->what = Job::What::finalize;
    return begin(guard, comm, job);
}

ncclResult_t ncclCommDestroy(ncclComm_t comm) {
    if (comm == nullptr) return ncclSuccess;
    Lock guard;
    if (comm->state != ncclComm::State::finalized && comm->state != ncclComm::State::failed) {
        const ncclResult_t result = ready(comm, "ncclCommDestroy");
        if (result != ncclSuccess) return result;
    }
    if (!comm->outstanding.empty()) {
        break_rule("a communicator with outstanding operations cannot be destroyed: " + who(*comm) +
                   " has " + std::to_string(comm->outstanding.size()) + " under way");
        return ncclInvalidUsage;
    }
    comm->state = ncclComm::State::destroyed;
    library().changed.notify_all();
    return ncclSuccess;
}

ncclResult_t ncclCommAbort(ncclComm_t comm) {
    if (comm == nullptr) return ncclSuccess;
    Lock guard;
    if (comm->gone()) {
        break_rule("a communicator is gone after its destruction or abort: ncclCommAbort by " +
                   who(*comm));
        return ncclInvalidArgument;
    }
    tell_to_end(*comm);
    if (group.depth > 0) {
        group.aborted.push_back(comm);
    } else {
        wait_until_drained(guard, {comm});
    }
    return ncclSuccess;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* asyncError) {
    if (comm == nullptr) {
        return refuse(ncclInvalidArgument, "ncclCommGetAsyncError: no communicator");
    }
    Launches to_queue;
    {
        Lock guard;
        if (comm->gone()) return ready(comm, "ncclCommGetAsyncError");
        if (comm->clique->broken) {
            *asyncError = ncclInternalError;
        } else if (comm->job) {
            *asyncError = poll(comm, to_queue);
        } else if (comm->state == ncclComm::State::failed) {
            *asyncError = ncclInvalidUsage;
        } else {
            *asyncError = ncclSuccess;
        }
    }
    queue(std::move(to_queue));
    return ncclSuccess;
}

ncclResult_t ncclCommCount(const ncclComm_t comm, int* count) {
    const Lock guard;
    const ncclResult_t result = ready(comm, "ncclCommCount");
    if (result == ncclSuccess) *count = comm->clique->size;
    return result;
}
ncclResult_t ncclCommCuDevice(const ncclComm_t comm, int* device) {
    const Lock guard;
    const ncclResult_t result = ready(comm, "ncclCommCuDevice");
    if (result == ncclSuccess) *device = comm->device;
    return result;
}
ncclResult_t ncclCommUserRank(const ncclComm_t comm, int* rank) {
    const Lock guard;
    const ncclResult_t result = ready(comm, "ncclCommUserRank");
    if (result == ncclSuccess) *rank = comm->rank;
    return result;
}

ncclResult_t ncclGroupStart() {
    ++group.depth;
    return ncclSuccess;
}

ncclResult_t ncclGroupEnd() {
    if (group.depth == 0) return refuse(ncclInvalidUsage, "ncclGroupEnd: not in a group call.");
    if (--group.depth > 0) return ncclSuccess;
    const std::vector<Call> calls = std::exchange(group.calls, {});
    ncclResult_t result = std::exchange(group.error, ncclSuccess);
    Launches to_queue;
    {
        Lock guard;
        if (result == ncclSuccess) result = launch_calls(guard, calls, to_queue);
        release_devices();
        wait_until_drained(guard, std::exchange(group.aborted, {}));
    }
    queue(std::move(to_queue));
    return result;
}

ncclResult_t ncclSend(const void* sendbuff, size_t count, ncclDataType_t datatype, int peer,
                      ncclComm_t comm, cudaStream_t stream) {
    return issue({.kind = Kind::send,
                  .send = sendbuff,
                  .count = count,
                  .type = datatype,
                  .other = peer,
                  .comm = comm,
                  .stream = stream},
                 "ncclSend");
}

ncclResult_t ncclRecv(void* recvbuff, size_t count, ncclDataType_t datatype, int peer,
                      ncclComm_t comm, cudaStream_t stream) {
    return issue({.kind = Kind::receive,
                  .receive = recvbuff,
                  .count = count,
                  .type = datatype,
                  .other = peer,
                  .comm = comm,
                  .stream = stream},
                 "ncclRecv");
}

ncclResult_t ncclBroadcast(const void* sendbuff, void* recvbuff, size_t count,
                           ncclDataType_t datatype, int root, ncclComm_t comm,
                           cudaStream_t stream) {
    return issue({.kind = Kind::broadcast,
                  .send = sendbuff,
                  .receive = recvbuff,
                  .count = count,
                  .type = datatype,
                  .other = root,
                  .comm = comm,
                  .stream = stream},
                 "ncclBroadcast");
}

ncclResult_t ncclAllGather(const void* sendbuff, void* recvbuff, size_t sendcount,
                           ncclDataType_t datatype, ncclComm_t comm, cudaStream_t stream) {
    return issue({.kind = Kind::all_gather,
                  .send = sendbuff,
                  .receive = recvbuff,
                  .count = sendcount,
                  .type = datatype,
                  .comm = comm,
                  .stream = stream},
                 "ncclAllGather");
}

ncclResult_t ncclReduce(const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype,
                        ncclRedOp_t op, int root, ncclComm_t comm, cudaStream_t stream) {
    return issue({.kind = Kind::reduce,
                  .send = sendbuff,
                  .receive = recvbuff,
                  .count = count,
                  .type = datatype,
                  .op = op,
                  .other = root,
                  .comm = comm,
                  .stream = stream},
                 "ncclReduce");
}

ncclResult_t ncclAllReduce(const void* sendbuff, void* recvbuff, size_t count,
                           ncclDataType_t datatype, ncclRedOp_t op, ncclComm_t comm,
                           cudaStream_t stream) {
    return issue({.kind = Kind::all_reduce,
                  .send = sendbuff,
                  .receive = recvbuff,
                  .count = count,
                  .type = datatype,
                  .op = op,
                  .comm = comm,
                  .stream = stream},
                 "ncclAllReduce");
}

ncclResult_t ncclReduceScatter(const void* sendbuff, void* recvbuff, size_t recvcount,
                               ncclDataType_t datatype, ncclRedOp_t op, ncclComm_t comm,
                               cudaStream_t stream) {
    return issue({.kind = Kind::reduce_scatter,
                  .send = sendbuff,
                  .receive = recvbuff,
                  .count = recvcount,
                  .type = datatype,
                  .op = op,
                  .comm = comm,
                  .stream = stream},
                 "ncclReduceScatter");
}
