// SPDX-License-Identifier: Apache-2.0
#include "vocabpipe/lowered.hpp"

#include "src/schedule/lower/slice.hpp"
#include "src/schedule/ops.hpp"

#include <algorithm>
#include <utility>

namespace vocabpipe {

namespace {

/// Communication of a program, each kind with each group once; a group of one needs no connection.
template <typename Visit>
void each_route(const Program& program, Visit&& visit) {
    std::vector<bool> seen(program.groups.size() * kLanes * kActions.size(), false);
    for (const Action& action : program.actions) {
        if (!is_communication(action.what)) continue;
        const Do what = transfer_kind(action.what);
        const size_t lane = action.group * size_t{kLanes} + static_cast<size_t>(action.lane);
        const size_t key = lane * kActions.size() + static_cast<size_t>(what);
        if (!seen[key]) visit(what, action.lane, program.groups[action.group]);
        seen[key] = true;
    }
}

void add_route(std::vector<Route>& routes, Do what, Lane lane, Group group) {
    if (group.ranks.size() > 1) routes.push_back({what, lane, std::move(group.ranks), group.root});
}

std::vector<Route> each_once(std::vector<Route> routes) {
    std::sort(routes.begin(), routes.end());
    routes.erase(std::unique(routes.begin(), routes.end()), routes.end());
    return routes;
}

}  // namespace

Program Lowered::of(int world_rank) const {
    const Mesh::Place place = mesh.place(world_rank);
    const int slice = mesh.slice(place);
    const auto k = static_cast<size_t>(place.pipeline);
    Program program = pipeline[k];
    program.rank = world_rank;
    for (Action& action : program.actions) {
        const Axis together = lowering::met_in(program, action, program.groups, stage_teams);
        action.order = lowering::order_at(action.order, together, mesh, slice);
    }
    for (const SliceBlock& block : blocks[k]) {
        Buffer& buffer = program.buffers[block.buffer];
        buffer = lowering::buffer_at(buffer, block, program.reductions, mesh, slice);
    }
    for (Group& group : program.groups) group = lowering::group_at(group, mesh, place);
    return program;
}

std::vector<Program> Lowered::all() const& {
    std::vector<Program> programs;
    programs.reserve(static_cast<size_t>(mesh.size()));
    for (int rank = 0; rank < mesh.size(); ++rank) programs.push_back(of(rank));
    return programs;
}

std::vector<Program> Lowered::all() && {
    const Lowered& world = *this;
    return mesh.slices() == 1 ? std::move(pipeline) : world.all();
}

std::vector<Route> Lowered::routes() const {
    std::vector<Route> routes;
    for (const Program& program : pipeline) {
        each_route(program, [&](Do what, Lane lane, const Group& group) {
            if (group.ranks.front() != program.rank) return;  // the first member stands for all
            for (int c = 0; c < mesh.slices(); ++c) {
                if (mesh.slices_along(group.axis, c).first != c) continue;
                const Mesh::Place place = mesh.place(program.rank * mesh.slices() + c);
                add_route(routes, what, lane, lowering::group_at(group, mesh, place));
            }
        });
    }
    return each_once(std::move(routes));
}

std::vector<Route> routes_of(const std::vector<Program>& programs) {
    std::vector<Route> routes;
    for (const Program& program : programs) {
        each_route(program, [&](Do what, Lane lane, const Group& group) {
            add_route(routes, what, lane, group);
        });
    }
    return each_once(std::move(routes));
}

}  // namespace vocabpipe
