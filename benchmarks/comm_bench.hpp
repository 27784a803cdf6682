// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/runtime/transport/transport.hpp"
#include "vocabpipe/device.hpp"
#include "vocabpipe/world.hpp"

#include <array>
#include <cstdint>

namespace vocabpipe::bench {

/// Operations of programs, on all ranks at once.
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
    int64_t bytes = 0;  ///< in the whole operation, rounded down to whole blocks of at least 1 byte
    int iterations = 20;  ///< timed together, as nccl-tests does; its defaults
    int warmup = 5;
};

/// Columns as nccl-tests defines them in doc/PERFORMANCE.md: size is a rank's data for messages and
/// broadcasts, else the blocks of all ranks together; algbw = size / time; busbw = algbw times 1
/// for messages and broadcasts, times (n - 1) / n for operations with a block per rank, which does
/// not send its own.
struct CommTiming {
    int64_t bytes = 0;   ///< size
    int64_t count = 0;   ///< elements of one block; elements are bytes
    double seconds = 0;  ///< of one operation on the slowest rank
    double algorithm_bandwidth = 0, bus_bandwidth = 0;  ///< GB/s
    int64_t wrong = 0;  ///< bytes on all ranks that differ from what was sent
};

/// Enqueues all iterations before it waits for the device; on the host each one completes before
/// the next. Then runs once more and compares what arrived. `transport` moves the memory of
/// `device`. Collective; the same result on every rank.
[[nodiscard]] CommTiming time_operation(Communicator& communicator, Device& device,
                                        Transport& transport, const CommCase& which);

}  // namespace vocabpipe::bench
