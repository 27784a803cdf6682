// SPDX-License-Identifier: Apache-2.0
#include "src/runtime/transport/nccl/communicator.hpp"

#include "vocabpipe/error.hpp"

#include <utility>

namespace vocabpipe::nccl {

namespace {

ncclConfig_t config_of(const CommunicatorOptions& options) {
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    // No sharing: parent and child that share resources must not run at the same time, and aborting
    // one breaks the other; point-to-point and collectives of a pipeline overlap.
    config.splitShare = 0;
    if (options.max_ctas > 0) config.maxCTAs = options.max_ctas;
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 27, 0)
    config.commName = options.name.c_str();
#endif
    return config;
}

}  // namespace

void check(ncclResult_t result, const char* call, int rank, ncclComm_t comm) {
    if (result == ncclSuccess || result == ncclInProgress) return;
    std::string text =
        "rank " + std::to_string(rank) + ": " + call + " failed: " + ncclGetErrorString(result);
    const char* detail = ncclGetLastError(comm);
    if (detail != nullptr && *detail != '\0') text.append(": ").append(detail);
    throw CommunicationError(text +
                             (result == ncclInvalidUsage
                                  ? "; NCCL requires a separate GPU for each rank; start one rank "
                                    "per GPU, or share GPUs with --transport threads"
                                  : "; NCCL_DEBUG=WARN shows more"));
}

NcclCommunicator::NcclCommunicator(const ncclUniqueId& id, int world_rank, int world_size,
                                   const CommunicatorOptions& options)
    : options_(options), world_rank_(world_rank), last_call_("ncclCommInitRankConfig") {
    ncclConfig_t config = config_of(options_);
    check(ncclCommInitRankConfig(&comm_, world_size, id, world_rank, &config), last_call_,
          world_rank_);
}

NcclCommunicator::NcclCommunicator(NcclCommunicator& parent, const Part& part,
                                   const CommunicatorOptions& options)
    : options_(options), world_rank_(parent.world_rank_), last_call_("ncclCommSplit") {
    ncclConfig_t config = config_of(options_);
    parent.last_call_ = last_call_;
    const int key = part.key < 0 ? world_rank_ : part.key;
    check(ncclCommSplit(parent.comm_, part.color, key, &comm_, &config), last_call_, world_rank_,
          parent.comm_);
}

bool NcclCommunicator::ready() {
    ncclResult_t state = ncclSuccess;
    check(ncclCommGetAsyncError(comm_, &state), "ncclCommGetAsyncError", world_rank_, comm_);
    if (state == ncclInProgress) return false;
    check(state, last_call_, world_rank_, comm_);
    last_call_ = "an operation under way";
    return true;
}

void NcclCommunicator::finalize() {
    last_call_ = "ncclCommFinalize";
    check(ncclCommFinalize(comm_), last_call_, world_rank_, comm_);
}

void NcclCommunicator::destroy() {
    check(ncclCommDestroy(std::exchange(comm_, nullptr)), "ncclCommDestroy", world_rank_);
}

void NcclCommunicator::abort() noexcept {
    // Ignore failures: nothing more can be done here.
    if (comm_ != nullptr) (void)ncclCommAbort(std::exchange(comm_, nullptr));
}

}  // namespace vocabpipe::nccl
