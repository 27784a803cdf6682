// SPDX-License-Identifier: Apache-2.0
#include "src/schedule/lower/program_hash.hpp"

#include "src/schedule/lower/slice.hpp"
#include "src/schedule/ops.hpp"

#include <span>

namespace vocabpipe::lowering {

namespace {

/// Mixes the numbers that make up a program, in order (multiply and shift, 64 bits at a time).
class Hash {
public:
    template <typename T>
    void add(T value) {
        state_ = (state_ ^ static_cast<uint64_t>(value)) * 0x9e3779b97f4a7c15ULL;
        state_ ^= state_ >> 32;
    }
    [[nodiscard]] uint64_t value() const { return state_; }

private:
    uint64_t state_ = 0xcbf29ce484222325ULL;
};

void add_buffers(Hash& hash, const Program& program, std::span<const SliceBlock> blocks,
                 const Dataflow& flow, const Mesh& mesh, int slice) {
    size_t next = 0;
    for (uint32_t i = 0; i < program.buffers.size(); ++i) {
        Buffer buffer = program.buffers[i];
        if (next < blocks.size() && blocks[next].buffer == i) {
            const SliceBlock& block = blocks[next++];
            buffer = buffer_at(buffer, block, flow.reductions, mesh, slice);
        }
        hash.add(buffer.bytes);
        hash.add(buffer.offset);
        hash.add(static_cast<uint64_t>(buffer.space) << 16 | buffer.bucket);
    }
}

void add_program(Hash& hash, const Lowered& world, size_t pipeline_rank, const Dataflow& flow,
                 int slice) {
    const Program& program = world.pipeline[pipeline_rank];
    hash.add(0);  // a field that programs had; hashes stay as they were recorded
    for (const Action& a : program.actions) {
        const Axis together = met_in(program, a, flow.groups, world.stage_teams);
        hash.add(static_cast<int>(a.what) | static_cast<int>(a.lane) << 8 |
                 static_cast<int>(!a.accumulate) << 12 | a.reduction << 16);
        if (a.pieces > 1) hash.add(a.pieces);
        if (a.pair_member > 0) hash.add(0x100 | a.pair_member);  // pieces are fewer
        hash.add(static_cast<uint64_t>(a.group) << 32 | a.item);
        hash.add(order_at(a.order, together, world.mesh, slice));
    }
    for (const Pass& pass : program.passes) {
        hash.add(static_cast<uint64_t>(pass.op) << 48 | static_cast<uint64_t>(pass.stage) << 32 |
                 pass.microbatch);
    }
    add_buffers(hash, program, world.blocks[pipeline_rank], flow, world.mesh, slice);
    for (const uint32_t operand : program.operands) hash.add(operand);
    for (const Edge& edge : program.edges) {
        hash.add(static_cast<uint64_t>(edge.before) << 32 | edge.after);
    }
    for (const uint32_t edge : program.streamed) hash.add(edge);
}

}  // namespace

uint64_t hash_of(const Lowered& world, const Dataflow& flow) {
    Hash hash;
    for (size_t k = 0; k < world.pipeline.size(); ++k) {
        for (int slice = 0; slice < world.mesh.slices(); ++slice) {
            add_program(hash, world, k, flow, slice);
        }
    }
    return hash.value();
}

}  // namespace vocabpipe::lowering
