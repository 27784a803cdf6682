// SPDX-License-Identifier: Apache-2.0
// The rules that are decided when the host issues an operation: who meets whom, what both ends must
// say alike, and the one order of launches over all communicators.
#include "tests/support/cuda_stand_in/nccl_elements.hpp"
#include "tests/support/cuda_stand_in/nccl_rules.hpp"
#include "tests/support/cuda_stand_in/nccl_state.hpp"

#include <algorithm>

namespace cuda_stand_in::nccl {

namespace {

std::string name_of(Kind kind) {
    switch (kind) {
        case Kind::send:
            return "send";
        case Kind::receive:
            return "receive";
        case Kind::broadcast:
            return "broadcast";
        case Kind::all_gather:
            return "all-gather";
        case Kind::reduce:
            return "reduce";
        case Kind::all_reduce:
            return "all-reduce";
        case Kind::reduce_scatter:
            return "reduce-scatter";
    }
    return "?";
}

bool reduces(Kind kind) {
    return kind == Kind::reduce || kind == Kind::all_reduce || kind == Kind::reduce_scatter;
}

/// Breaks a rule between two calls of one communicator.
void disagree(const std::string& rule, const Call& mine, const Call& theirs) {
    break_rule(rule + ": " + text_of(mine) + " meets " + text_of(theirs));
    give_up(*mine.comm->clique);
}

std::shared_ptr<Meeting> meet_message(const Call& call, size_t& slot) {
    Clique& clique = *call.comm->clique;
    const bool sends = call.kind == Kind::send;
    slot = sends ? 0 : 1;
    const std::pair pair =
        sends ? std::pair{call.comm->rank, call.other} : std::pair{call.other, call.comm->rank};
    auto& waiting = clique.messages[pair];
    std::shared_ptr<Meeting> meeting;
    if (!waiting.empty() && !waiting.front()->slots[slot].issued) {
        meeting = waiting.front();
        waiting.pop_front();
    } else {
        meeting = std::make_shared<Meeting>();
        meeting->clique = call.comm->clique;
        meeting->message = true;
        meeting->slots.resize(2);
        meeting->slots[0].rank = pair.first;
        meeting->slots[1].rank = pair.second;
        waiting.push_back(meeting);
    }
    meeting->slots[slot].issued = true;
    meeting->slots[slot].call = call;
    if (!meeting->all_issued()) return meeting;
    const Call& other = meeting->slots[1 - slot].call;
    if (other.count != call.count || other.type != call.type) {
        disagree("counts and types of a message must be equal on both ends", call, other);
        return nullptr;
    }
    return meeting;
}

std::shared_ptr<Meeting> meet_collective(const Call& call, size_t& slot) {
    Clique& clique = *call.comm->clique;
    slot = static_cast<size_t>(call.comm->rank);
    const uint64_t number = call.comm->collectives++;
    const size_t at = number - clique.first_collective;
    if (at == clique.collectives.size()) {
        auto fresh = std::make_shared<Meeting>();
        fresh->clique = call.comm->clique;
        fresh->slots.resize(static_cast<size_t>(clique.size));
        for (int rank = 0; rank < clique.size; ++rank) {
            fresh->slots[static_cast<size_t>(rank)].rank = rank;
        }
        clique.collectives.push_back(std::move(fresh));
    }
    const std::shared_ptr<Meeting> meeting = clique.collectives[at];
    const bool first = std::none_of(meeting->slots.begin(), meeting->slots.end(),
                                    [](const Meeting::Slot& s) { return s.issued; });
    if (!first) {
        const Call& other = meeting->first();
        const bool alike = other.kind == call.kind && other.count == call.count &&
                           other.type == call.type && other.other == call.other &&
                           (!reduces(call.kind) || other.op == call.op);
        if (!alike) {
            disagree(
                "the collectives of a communicator must come in the same order with the same kind, "
                "count, type, root and reduction on all ranks",
                call, other);
            return nullptr;
        }
    }
    meeting->slots[slot].issued = true;
    meeting->slots[slot].call = call;
    while (!clique.collectives.empty() && clique.collectives.front()->all_issued()) {
        clique.collectives.pop_front();
        ++clique.first_collective;
    }
    return meeting;
}

// --- the model of serial launches ----------------------------------------------------------------

void advance(int device) {
    std::vector<int> todo{device};
    while (!todo.empty()) {
        Device& at = library().devices[todo.back()];
        todo.pop_back();
        if (at.serial.empty()) continue;
        const std::shared_ptr<Launch> launch = at.serial.front();
        for (auto& [meeting, own] : launch->ends) {
            Meeting::Slot& slot = meeting->slots[own];
            if (meeting->retired || slot.at_head) continue;
            slot.at_head = true;
            if (!std::all_of(meeting->slots.begin(), meeting->slots.end(),
                             [](const Meeting::Slot& s) { return s.at_head; })) {
                continue;
            }
            meeting->retired = true;
            for (const Meeting::Slot& end : meeting->slots) {
                if (--end.launch->unretired > 0) continue;
                const int freed = end.launch->device;
                library().devices[freed].serial.pop_front();
                todo.push_back(freed);
            }
        }
    }
}

struct Wait {
    int device;
    const Meeting* meeting;  ///< open at the head of `device`
    int for_device;          ///< that stands at another launch and cannot come to the meeting yet
};

std::vector<Wait> waits_of(int device) {
    std::vector<Wait> waits;
    const auto& serial = library().devices[device].serial;
    if (serial.empty()) return waits;
    for (const auto& [meeting, own] : serial.front()->ends) {
        if (meeting->retired) continue;
        for (const Meeting::Slot& slot : meeting->slots) {
            const ncclComm* member = meeting->clique->members[static_cast<size_t>(slot.rank)];
            if (slot.at_head || member == nullptr) continue;
            if (library().devices[member->device].serial.empty()) continue;
            waits.push_back({device, meeting.get(), member->device});
        }
    }
    return waits;
}

/// Devices that wait for each other in a circle, each for the next; empty if there are none.
std::vector<Wait> circle_from(int device, std::vector<Wait>& path, std::set<int>& dead_ends) {
    for (const Wait& wait : waits_of(device)) {
        if (dead_ends.contains(wait.for_device)) continue;
        path.push_back(wait);
        const auto begin = std::find_if(path.begin(), path.end(),
                                        [&](const Wait& w) { return w.device == wait.for_device; });
        if (begin != path.end()) return {begin, path.end()};
        std::vector<Wait> circle = circle_from(wait.for_device, path, dead_ends);
        if (!circle.empty()) return circle;
        path.pop_back();
    }
    dead_ends.insert(device);
    return {};
}

}  // namespace

std::string text_of(const Call& call) {
    std::string text = "operation " + std::to_string(call.number) + " of rank " +
                       std::to_string(call.comm->rank) + " on '" + call.comm->clique->name + "' (" +
                       name_of(call.kind) + " of " + std::to_string(call.count) + " x " +
                       name_of(call.type);
    if (reduces(call.kind)) text += ", " + name_of(call.op);
    if (call.kind == Kind::send) text += " to rank " + std::to_string(call.other);
    if (call.kind == Kind::receive) text += " from rank " + std::to_string(call.other);
    if (call.kind == Kind::broadcast || call.kind == Kind::reduce) {
        text += ", root " + std::to_string(call.other);
    }
    return text + ")";
}

bool Meeting::all_issued() const {
    return std::all_of(slots.begin(), slots.end(), [](const Slot& slot) { return slot.issued; });
}
bool Meeting::all_arrived() const {
    return std::all_of(slots.begin(), slots.end(), [](const Slot& slot) { return slot.arrived; });
}
const Call& Meeting::first() const {
    return std::find_if(slots.begin(), slots.end(), [](const Slot& slot) { return slot.issued; })
        ->call;
}

std::shared_ptr<Meeting> meet(const Call& call, size_t& slot) {
    return call.kind == Kind::send || call.kind == Kind::receive ? meet_message(call, slot)
                                                                 : meet_collective(call, slot);
}

void model_launch(const std::shared_ptr<Launch>& launch) {
    if (launch->comm->clique->aborted || launch->comm->clique->broken) return;
    launch->unretired = launch->ends.size();
    for (auto& [meeting, slot] : launch->ends) meeting->slots[slot].launch = launch.get();
    library().devices[launch->device].serial.push_back(launch);
    advance(launch->device);
    std::vector<Wait> path;
    std::set<int> dead_ends;
    // What was issued before had no circle, so a new one goes through this device.
    const std::vector<Wait> circle = circle_from(launch->device, path, dead_ends);
    if (circle.empty()) return;
    std::string text =
        "all ranks must launch in one order over all communicators; run one at a time as issued";
    for (const Wait& wait : circle) {
        const auto& ends = library().devices[wait.device].serial.front()->ends;
        const auto end = std::find_if(ends.begin(), ends.end(),
                                      [&](const auto& e) { return e.first.get() == wait.meeting; });
        text += (wait.device == circle.front().device ? ": device " : "; device ") +
                std::to_string(wait.device) + " stands at " +
                text_of(end->first->slots[end->second].call) + " and waits for device " +
                std::to_string(wait.for_device);
    }
    std::vector<std::shared_ptr<Clique>> cliques;
    for (const Wait& wait : circle) cliques.push_back(wait.meeting->clique);
    break_rule(text);
    for (const std::shared_ptr<Clique>& clique : cliques) give_up(*clique);
}

void forget_in_model(Clique& clique) {
    for (auto& [device, state] : library().devices) {
        std::erase_if(state.serial, [&](const std::shared_ptr<Launch>& launch) {
            return launch->comm->clique.get() == &clique;
        });
    }
    std::vector<int> devices;
    for (const auto& [device, state] : library().devices) devices.push_back(device);
    for (const int device : devices) advance(device);
}

void give_up(Clique& clique) {
    clique.broken = true;
    forget_in_model(clique);
    library().changed.notify_all();
}

}  // namespace cuda_stand_in::nccl
