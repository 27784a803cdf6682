// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/runtime/transport/transport.hpp"
#include "vocabpipe/device.hpp"
#include "vocabpipe/world.hpp"

#include <array>
#include <cstdint>

namespace vocabpipe::bench {

/// What programs send, over all ranks at once.
enum class Operation : uint8_t {
    sendrecv,    ///< every rank to the next one, in a ring
    broadcast,   ///< from rank 0
    all_gather,  ///< every rank's block to all
    all_to_all,  ///< a block from every rank to every rank: reduce-scatter without the sum
    gather,      ///< every rank's block to rank 0
};
inline constexpr std::array kOperationNames{"sendrecv", "broadcast", "all_gather", "all_to_all",
                                            "gather"};

struct CommCase {
    Operation operation = Operation::sendrecv;
    int64_t bytes = 0;    ///< of the whole operation, rounded down to whole blocks, at least 1 each
    int iterations = 20;  ///< timed together, as nccl-tests does; its defaults
    int warmup = 5;
};

/// Columns as nccl-tests defines them in doc/PERFORMANCE.md: size is a rank's data in messages and
/// broadcasts, else the blocks of all ranks together; algbw = size / time; busbw = algbw times 1
/// for messages and broadcasts, (n - 1) / n for what consists of one block per rank, which leaves
/// its own at home.
struct CommTiming {
    int64_t bytes = 0;   ///< size
    int64_t count = 0;   ///< elements of one block; elements are bytes
    double seconds = 0;  ///< of one operation on the slowest rank
    double algorithm_bandwidth = 0, bus_bandwidth = 0;  ///< GB/s
    int64_t wrong = 0;  ///< bytes on all ranks that are not what was sent
};

/// Enqueues all iterations before it waits for the device; on the host one after the other
/// completes. Then once more, and compares what arrived. `transport` moves the memory of `device`.
/// Collective; the same result on every rank.
[[nodiscard]] CommTiming time_operation(Communicator& communicator, Device& device,
                                        Transport& transport, const CommCase& which);

}  // namespace vocabpipe::bench
