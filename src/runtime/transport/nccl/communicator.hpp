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
    std::string name;  ///< in NCCL's logs and profiles, where the version has it (2.27)
    /// Most thread blocks (each takes an SM) that one launch may use; 0: NCCL decides.
    int max_ctas = 0;
};

/// One rank's end of a non-blocking NCCL communicator. Non-blocking, because only then a call that
/// waits for a dead peer returns, and the communicator can be aborted from the same thread.
///
/// After every call that launches or changes something, nothing else may be called before ready().
class NcclCommunicator {
public:
    /// Begins to join the communicator of `id` on the current device. Collective.
    NcclCommunicator(const ncclUniqueId& id, int world_rank, int world_size,
                     const CommunicatorOptions& options);
    /// Begins to split `parent`, on which nothing may be outstanding; poll the parent. Members of
    /// the new one are the ranks that say so, in the order of `parent`. Collective over `parent`.
    NcclCommunicator(NcclCommunicator& parent, bool member, const CommunicatorOptions& options)
        : NcclCommunicator(parent, Part{.color = member ? 0 : NCCL_SPLIT_NOCOLOR}, options) {}
    /// A rank's place in a split that makes several communicators at once.
    struct Part {
        int color = 0;  ///< the same for all members of one; NCCL_SPLIT_NOCOLOR: of none
        int key = -1;   ///< orders the members; negative: as in the parent
    };
    NcclCommunicator(NcclCommunicator& parent, const Part& part,
                     const CommunicatorOptions& options);
    /// Aborts what was not closed: works at any time and waits for no other rank.
    ~NcclCommunicator() { abort(); }
    NcclCommunicator(const NcclCommunicator&) = delete;
    NcclCommunicator& operator=(const NcclCommunicator&) = delete;

    /// Null for a rank that is no member, and until a split is complete.
    [[nodiscard]] ncclComm_t get() const { return comm_; }
    /// Whether the last call is done (ncclCommGetAsyncError). Throws CommunicationError if it or
    /// anything since has failed.
    [[nodiscard]] bool ready();

    /// Begins the orderly end: all operations are flushed; poll ready(). Collective.
    void finalize();
    /// Frees what a finalized one still holds.
    void destroy();
    /// Ends all operations where they are. Their memory may go when this returns, or when the open
    /// group ends: communicators of which one's operations may wait behind another's are aborted
    /// in one group.
    void abort() noexcept;

private:
    CommunicatorOptions options_;  ///< NCCL may read the name while it initialises by itself
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
