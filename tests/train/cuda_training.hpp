// SPDX-License-Identifier: Apache-2.0
// Training of teams on CUDA devices.
#pragma once

#include "tests/runtime/cuda_devices.hpp"
#include "tests/support/blocking_device.hpp"
#include "tests/train/training_run.hpp"
#include "vocabpipe/mesh.hpp"

#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <ostream>
#include <string>
#include <vector>

namespace vocabpipe::testing {

inline std::string name_of(CudaTransport transport) {
    return transport == CudaTransport::nccl ? "nccl" : "copies";
}

inline constexpr std::array kTransports{CudaTransport::copies, CudaTransport::nccl};
inline constexpr std::array kRecomputes{Recompute::none, Recompute::selective, Recompute::full};

/// What a team is tested with.
struct CudaTeamCell {
    std::string schedule;
    VocabMode mode = VocabMode::none;
    Mesh mesh;
    CudaTransport transport = CudaTransport::copies;
    int pieces = 1;
    Recompute recompute = Recompute::none;
    int expert_tensor = 1;  ///< of the mesh's expert ranks
    int depths = 0;         ///< of multi-token prediction

    [[nodiscard]] std::string name() const {
        constexpr std::array kRecompute{"", "_selective", "_full"};
        return schedule + "_" + std::string(to_string(mode)) + "_p" +
               std::to_string(mesh.pipeline) + "_d" + std::to_string(mesh.data) + "_t" +
               std::to_string(mesh.tensor) + "_e" + std::to_string(mesh.expert) + "_" +
               name_of(transport) + "_" + std::to_string(pieces) +
               kRecompute.at(static_cast<size_t>(recompute)) +
               (expert_tensor == 1 ? "" : "_x" + std::to_string(expert_tensor)) +
               (depths == 0 ? "" : "_D" + std::to_string(depths));
    }
    friend void PrintTo(const CudaTeamCell& cell, std::ostream* out) { *out << cell.name(); }
};

/// Those for which there are GPUs.
struct CudaTeamCells {
    std::vector<CudaTeamCell> cells;
    void add(const CudaTeamCell& cell) {
        const bool fits =
            cell.transport == CudaTransport::copies || cell.mesh.size() <= gpus_for_nccl();
        if (fits) cells.push_back(cell);
    }
};

/// For all transports alike, because bits depend on it.
inline CudaDeviceOptions team_device_options(CudaTransport transport, int rank) {
    return {.ordinal = transport == CudaTransport::nccl ? gpu_of(rank) : 0,
            .transport = transport,
            .left_multiprocessors = nccl_multiprocessors(/*links=*/1)};
}

inline Training train_on(TrainingSetup setup, CudaTransport transport) {
    setup.make_device = [=](int rank) {
        return make_cuda_device(team_device_options(transport, rank));
    };
    return train_on_threads(setup);
}

/// Exchanges stop everything, go through the host, and are not cut.
inline Training train_blocking(TrainingSetup setup) {
    setup.tensor_pieces = setup.expert_pieces.dispatch = 1;
    setup.make_device = [](int rank) {
        return make_blocking_device(
            make_cuda_device(team_device_options(CudaTransport::copies, rank)));
    };
    return train_on_threads(setup);
}

#ifdef VOCABPIPE_ON_STAND_IN
inline void expect_same_bits_under_delays(const TrainingSetup& setup, uint64_t seed) {
    for (const CudaTransport transport : {CudaTransport::copies, CudaTransport::nccl}) {
        const Training expected = train_on(setup, transport);
        cuda_stand_in::set_delays({.seed = seed, .longest = std::chrono::microseconds(200)});
        const Training delayed = train_on(setup, transport);
        cuda_stand_in::set_delays({});
        EXPECT_EQ(first_difference(expected, delayed), "")
            << name_of(transport) << " " << seed << " " << to_string(setup.mode);
    }
}

/// What the host waits for, and allocates, in the last of `steps` steps, of which the others use
/// everything for the first time.
inline cuda_stand_in::Counters counted_in_last_step(TrainingSetup setup, CudaTransport transport,
                                                    int steps) {
    const auto counters_of = [&](int count) {
        setup.steps = count;
        cuda_stand_in::reset_counters();
        (void)train_on(setup, transport);
        return cuda_stand_in::counters();
    };
    const cuda_stand_in::Counters before = counters_of(steps - 1);
    cuda_stand_in::Counters all = counters_of(steps);
    all.device_synchronisations -= before.device_synchronisations;
    all.stream_synchronisations -= before.stream_synchronisations;
    all.event_synchronisations -= before.event_synchronisations;
    all.blocking_copies -= before.blocking_copies;
    all.allocations -= before.allocations;
    return all;
}
#endif

}  // namespace vocabpipe::testing
