// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nccl.h>

#include <string>

#if NCCL_VERSION_CODE < NCCL_VERSION(2, 26, 0)
#error "vocabpipe needs NCCL 2.26 or newer (NCCL_LAUNCH_ORDER_IMPLICIT); built against 2.28"
#endif

namespace vocabpipe::nccl {

/// Throws CommunicationError unless the result is ncclSuccess or ncclInProgress. `call` names the
/// NCCL function, `rank` is the world's.
void check(ncclResult_t result, const char* call, int rank, ncclComm_t comm = nullptr);

struct CommunicatorOptions {
    std::string name;  ///< in NCCL's logs and profiles, from version 2.27 on
    /// Most thread blocks (each takes an SM) that one launch may use; 0: NCCL decides.
    int max_ctas = 0;
};

/// One rank's end of a non-blocking NCCL communicator. Only non-blocking calls return while a peer
/// is dead, so that the same thread can abort the communicator.
///
/// After every call that launches or changes something, call nothing else until ready() is true.
class NcclCommunicator {
public:
    /// Begins to join the communicator of `id` on the current device. Collective.
    NcclCommunicator(const ncclUniqueId& id, int world_rank, int world_size,
                     const CommunicatorOptions& options);
    /// Begins to split `parent`, on which nothing may be outstanding; poll the parent. Members are
    /// the ranks with `member`, in the order of `parent`. Collective over `parent`.
    NcclCommunicator(NcclCommunicator& parent, bool member, const CommunicatorOptions& options)
        : NcclCommunicator(parent, Part{.color = member ? 0 : NCCL_SPLIT_NOCOLOR}, options) {}
    /// A rank's place in a split that makes several communicators at once.
    struct Part {
        int color = 0;  ///< equal for all members of one; NCCL_SPLIT_NOCOLOR: none
        int key = -1;   ///< orders the members; negative: as in the parent
    };
    NcclCommunicator(NcclCommunicator& parent, const Part& part,
                     const CommunicatorOptions& options);
    /// Aborts the communicator unless it was closed: works at any time and waits for no other rank.
    ~NcclCommunicator() { abort(); }
    NcclCommunicator(const NcclCommunicator&) = delete;
    NcclCommunicator& operator=(const NcclCommunicator&) = delete;

    /// Null for a rank that is not a member, and until a split is complete.
    [[nodiscard]] ncclComm_t get() const { return comm_; }
    /// Whether the last call is complete (ncclCommGetAsyncError). Throws CommunicationError if it
    /// or anything since has failed.
    [[nodiscard]] bool ready();

    /// Begins to close the communicator: flushes all operations; poll ready(). Collective.
    void finalize();
    /// Frees a finalized communicator.
    void destroy();
    /// Stops all operations. Their memory may be freed when this returns or, in a group, when the
    /// group ends: if operations of one communicator may wait behind another's, abort both in one
    /// group.
    void abort() noexcept;

private:
    CommunicatorOptions options_;  ///< NCCL may read the name in its own thread
    int world_rank_;
    ncclComm_t comm_ = nullptr;
    const char* last_call_;
};

/// ncclGroupStart and ncclGroupEnd; an exception in between closes the group, too.
class GroupCalls {
public:
    explicit GroupCalls(int rank) : rank_(rank) { check(ncclGroupStart(), "ncclGroupStart", rank); }
    ~GroupCalls() {
        if (open_) (void)ncclGroupEnd();
    }
    GroupCalls(const GroupCalls&) = delete;
    GroupCalls& operator=(const GroupCalls&) = delete;
    void end() {
        open_ = false;
        check(ncclGroupEnd(), "ncclGroupEnd", rank_);
    }

private:
    int rank_;
    bool open_ = true;
};

}  // namespace vocabpipe::nccl
