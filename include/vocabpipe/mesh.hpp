// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace vocabpipe {

/// How the ranks of a world divide into pipelines that train on different data: `data` replicas of
/// a pipeline of `pipeline` ranks. Replicas of the same pipeline rank are neighbours, as in
/// Megatron's default order (tp-cp-ep-dp-pp): mpirun puts them on one host, and they have the most
/// to tell each other.
struct Mesh {
    int pipeline = 1;  ///< p, ranks of one pipeline
    int data = 1;      ///< d, replicas

    /// Ranks of the world.
    [[nodiscard]] constexpr int size() const { return pipeline * data; }
    /// The rank of the world at this place.
    [[nodiscard]] constexpr int world_rank(int pipeline_rank, int replica) const {
        return pipeline_rank * data + replica;
    }
    /// Which part of the pipeline a rank is.
    [[nodiscard]] constexpr int pipeline_rank(int world_rank) const { return world_rank / data; }
    /// Which pipeline a rank belongs to.
    [[nodiscard]] constexpr int replica(int world_rank) const { return world_rank % data; }

    /// Member by member.
    friend bool operator==(const Mesh&, const Mesh&) = default;
};

}  // namespace vocabpipe
