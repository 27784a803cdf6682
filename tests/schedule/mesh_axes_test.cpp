// SPDX-License-Identifier: Apache-2.0
// Groups of every axis of a mesh against their definition, coordinate by coordinate.
#include "src/schedule/lower/slice.hpp"
#include "vocabpipe/error.hpp"
#include "vocabpipe/mesh.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <vector>

namespace vocabpipe::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

/// Coordinates of a rank, counted out: tensor fastest, pipeline slowest.
struct Coordinates {
    int k = 0, r = 0, c = 0, i = 0;
    int slice = 0;
    int j = 0, q = 0;  ///< which experts, and which copy of them
};

std::vector<Coordinates> counted_out(const Mesh& mesh) {
    std::vector<Coordinates> ranks;
    for (int k = 0; k < mesh.pipeline; ++k) {
        int slice = 0;
        int j = 0;
        int q = 0;
        for (int r = 0; r < mesh.data; ++r) {
            for (int c = 0; c < mesh.context; ++c) {
                for (int i = 0; i < mesh.tensor; ++i) {
                    ranks.push_back({k, r, c, i, slice++, j, q});
                    if (++j == mesh.expert) j = 0, ++q;
                }
            }
        }
    }
    return ranks;
}

/// What the members of an axis' group have in common.
std::vector<int> fixed(Axis axis, const Coordinates& at) {
    switch (axis) {
        case Axis::pipeline:
            return {at.r, at.c, at.i};
        case Axis::model:
            return {at.r, at.c};
        case Axis::tensor:
            return {at.k, at.r, at.c};
        case Axis::context:
            return {at.k, at.r, at.i};
        case Axis::context_tensor:
            return {at.k, at.r};
        case Axis::expert:
            return {at.k, at.q};
        case Axis::data:
            return {at.k, at.i};
        case Axis::data_tensor:
            return {at.k};
        case Axis::expert_data:
            return {at.k, at.j};
        case Axis::world:
            break;
    }
    return {};
}

std::vector<Mesh> meshes() {
    std::vector<Mesh> all;
    for (int p = 1; p <= 3; ++p) {
        for (int d = 1; d <= 6; ++d) {
            for (int t = 1; t <= 4; ++t) {
                for (int e = 1; e <= d * t; ++e) {
                    const bool nests = t % e == 0 || e % t == 0;
                    if (d * t % e == 0 && nests) all.push_back({p, d, t, e});
                }
                for (int context = 2; context <= 3; ++context) {
                    all.push_back({p, d, t, 1, context});
                    all.push_back({p, d, t, t, context});
                    all.push_back({p, d, t, context * t, context});
                    all.push_back({p, d, t, d * context * t, context});
                }
            }
        }
    }
    return all;
}

std::string sizes_of_mesh(const Mesh& mesh) {
    return "p=" + std::to_string(mesh.pipeline) + " d=" + std::to_string(mesh.data) +
           " t=" + std::to_string(mesh.tensor) + " e=" + std::to_string(mesh.expert) +
           " C=" + std::to_string(mesh.context);
}

TEST(MeshAxes, RanksAreCountedTensorFastestAndPipelineSlowest) {
    for (const Mesh& mesh : meshes()) {
        SCOPED_TRACE(sizes_of_mesh(mesh));
        ASSERT_NO_THROW(mesh.check());
        const std::vector<Coordinates> ranks = counted_out(mesh);
        ASSERT_EQ(mesh.size(), static_cast<int>(ranks.size()));
        for (int rank = 0; rank < mesh.size(); ++rank) {
            const Coordinates& at = ranks[static_cast<size_t>(rank)];
            const Mesh::Place place{at.k, at.r, at.i, at.c};
            ASSERT_EQ(mesh.place(rank), place);
            ASSERT_EQ(mesh.world_rank(place), rank);
            ASSERT_EQ(mesh.pipeline_rank(rank), at.k);
            ASSERT_EQ(mesh.replica(rank), at.r);
            ASSERT_EQ(mesh.slice(place), at.slice);
            if (mesh.tensor * mesh.context == 1) {
                ASSERT_EQ(rank, at.k * mesh.data + at.r);
                ASSERT_EQ(mesh.world_rank(at.k, at.r), rank);
            }
        }
    }
}

TEST(MeshAxes, GroupsOfAnAxisAreTheRanksThatShareItsFixedCoordinates) {
    for (const Mesh& mesh : meshes()) {
        const std::vector<Coordinates> ranks = counted_out(mesh);
        for (const Axis axis : kAxes) {
            SCOPED_TRACE(sizes_of_mesh(mesh) + " " + std::string(to_string(axis)));
            std::map<std::vector<int>, std::vector<int>> groups;  // so they partition the world
            for (int rank = 0; rank < mesh.size(); ++rank) {
                groups[fixed(axis, ranks[static_cast<size_t>(rank)])].push_back(rank);
            }
            for (int rank = 0; rank < mesh.size(); ++rank) {
                const std::vector<int> group = mesh.ranks_along(axis, mesh.place(rank));
                ASSERT_EQ(group, groups[fixed(axis, ranks[static_cast<size_t>(rank)])]);
                ASSERT_EQ(mesh.size_of(axis), static_cast<int>(group.size()));
            }
        }
    }
}

TEST(MeshAxes, SizesMultiply) {
    for (const Mesh& mesh : meshes()) {
        SCOPED_TRACE(sizes_of_mesh(mesh));
        const auto size = [&](Axis axis) { return mesh.size_of(axis); };
        EXPECT_EQ(size(Axis::pipeline), mesh.pipeline);
        EXPECT_EQ(size(Axis::tensor), mesh.tensor);
        EXPECT_EQ(size(Axis::expert), mesh.expert);
        EXPECT_EQ(size(Axis::context), mesh.context);
        EXPECT_EQ(size(Axis::context_tensor), size(Axis::context) * size(Axis::tensor));
        EXPECT_EQ(size(Axis::data), mesh.data * mesh.context);
        EXPECT_EQ(size(Axis::model), size(Axis::pipeline) * size(Axis::tensor));
        EXPECT_EQ(size(Axis::data_tensor), size(Axis::data) * size(Axis::tensor));
        EXPECT_EQ(size(Axis::data_tensor), size(Axis::expert) * size(Axis::expert_data));
        EXPECT_EQ(size(Axis::world), size(Axis::pipeline) * size(Axis::data_tensor));
        EXPECT_EQ(size(Axis::world), size(Axis::model) * size(Axis::data));
    }
}

// A group of some pipeline ranks: those of the axis' group that are at one of them.
TEST(MeshAxes, GroupsOfAFlowTakeInTheirSlices) {
    for (const Mesh& mesh : meshes()) {
        const std::vector<Coordinates> ranks = counted_out(mesh);
        for (const Axis axis : kAxes) {
            SCOPED_TRACE(sizes_of_mesh(mesh) + " " + std::string(to_string(axis)));
            // The last two pipeline ranks where the axis joins several, else of one.
            Group of_pipeline{{mesh.pipeline - 1}, mesh.pipeline - 1, axis};
            if (spans_pipeline(axis) && mesh.pipeline > 1) {
                of_pipeline.ranks.insert(of_pipeline.ranks.begin(), mesh.pipeline - 2);
            }
            for (int rank = 0; rank < mesh.size(); ++rank) {
                const Mesh::Place place = mesh.place(rank);
                if (std::ranges::count(of_pipeline.ranks, place.pipeline) == 0) continue;
                std::vector<int> expected;
                for (const int other : mesh.ranks_along(axis, place)) {
                    const int k = ranks[static_cast<size_t>(other)].k;
                    if (std::ranges::count(of_pipeline.ranks, k) > 0) expected.push_back(other);
                }
                const Group group = lowering::group_at(of_pipeline, mesh, place);
                ASSERT_EQ(group.ranks, expected);
                ASSERT_EQ(group.axis, axis);
                // All members agree on the root, which is one of them, at the flow's place.
                ASSERT_EQ(mesh.pipeline_rank(group.root), mesh.pipeline - 1);
                for (const int member : group.ranks) {
                    const Group theirs = lowering::group_at(of_pipeline, mesh, mesh.place(member));
                    ASSERT_EQ(theirs, group);
                }
                ASSERT_EQ(std::ranges::count(group.ranks, group.root), 1);
            }
        }
    }
}

/// Slices meet in what they do together, and have positions of their own otherwise.
TEST(MeshAxes, PositionsAreSharedWithinAGroupAlone) {
    for (const Mesh& mesh : meshes()) {
        for (const Axis axis : kAxes) {
            SCOPED_TRACE(sizes_of_mesh(mesh) + " " + std::string(to_string(axis)));
            std::map<uint32_t, std::set<int>> slices_at;
            for (int c = 0; c < mesh.slices(); ++c) {
                for (const uint32_t order : {0u, 1u, 7u}) {
                    const uint32_t at = lowering::order_at(order, axis, mesh, c);
                    ASSERT_EQ(at / static_cast<uint32_t>(mesh.slices()), order);
                    slices_at[at].insert(c);
                }
            }
            for (const auto& [at, slices] : slices_at) {
                const Mesh::Slices along = mesh.slices_along(axis, *slices.begin());
                std::set<int> expected;
                for (int n = 0; n < along.count; ++n) expected.insert(along[n]);
                ASSERT_EQ(slices, expected);
            }
        }
    }
}

std::string refusal(const Mesh& mesh) {
    try {
        mesh.check();
    } catch (const UsageError& error) {
        return error.what();
    }
    return "";
}

TEST(MeshAxes, RefusesWhatDoesNotDivideOrNest) {
    EXPECT_THAT(refusal({.data = 0}), HasSubstr("0 data"));
    EXPECT_THAT(refusal({.tensor = -2}), HasSubstr("-2 tensor"));
    EXPECT_THAT(refusal({.pipeline = 2, .data = 2, .tensor = 2, .expert = 3}),
                AllOf(HasSubstr("3 expert ranks must divide the 4 slices of 2 data x 2 tensor"),
                      HasSubstr("use a divisor of 4")));
    EXPECT_THAT(refusal({.data = 3, .tensor = 2, .expert = 3}),
                AllOf(HasSubstr("3 expert ranks and 2 tensor ranks do not nest"),
                      HasSubstr("multiple of the other")));
    EXPECT_THAT(refusal({.context = 0}), HasSubstr("0 context"));
    EXPECT_THAT(refusal({.data = 2, .expert = 2, .context = 3}),
                HasSubstr("2 expert ranks and 3 context and tensor ranks do not nest"));
    EXPECT_THAT(refusal({.expert = 2, .context = 3}),
                HasSubstr("must divide the 3 slices of 1 data x 3 context x 1 tensor ranks"));
    EXPECT_EQ(refusal({.data = 2, .expert = 6, .context = 3}), "");
    EXPECT_EQ(refusal({.data = 3, .tensor = 2, .expert = 6}), "");
    EXPECT_EQ(refusal({.data = 1, .tensor = 4, .expert = 2}), "");
}

}  // namespace
}  // namespace vocabpipe::testing
