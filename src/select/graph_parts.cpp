// SPDX-License-Identifier: Apache-2.0
#include "src/select/graph_parts.hpp"

#include "src/runtime/gathered.hpp"
#include "src/support/text_layout.hpp"
#include "vocabpipe/error.hpp"

#include <cstddef>
#include <filesystem>
#include <span>
#include <utility>
#include <vector>

namespace vocabpipe {

namespace {

constexpr size_t kEntriesAtOnce = size_t{1} << 16;
constexpr int64_t kBeginsAtOnce = int64_t{1} << 14;

std::string rows_text(const PartRows& rows) {
    return "rows " + std::to_string(rows.first) + " to " + std::to_string(rows.last - 1);
}

}  // namespace

PartedGraph owners_of_parts(Communicator& world, const GraphFile& graph) {
    const std::vector<PartRows> rows =
        gathered_values(world, PartRows{.first = graph.first_row(), .last = graph.last_row()});
    const std::vector<std::string> data =
        gathered_texts(world, std::to_string(graph.nodes()) + " samples of " + graph.corpus().data);
    const auto refuse = [&](const std::string& what) {
        throw AgreedError(ExitCode::usage, "--graph " + graph.path() + ": " + what);
    };
    const std::vector<int64_t> entries = gathered_values(world, graph.entries());
    PartedGraph parted{.owners = Ownership(0, 1)};
    std::vector<int64_t> begins;
    int64_t end = 0;
    for (size_t rank = 0; rank < rows.size();) {
        const PartRows& part = rows[rank];
        const std::string who = "rank " + std::to_string(rank) + " sees ";
        if (data[rank] != data.front()) {
            refuse(who + "another graph than rank 0: " + data[rank] + ", not " + data.front());
        }
        if (part.first != end) {
            refuse(who + rows_text(part) + ", where row " + std::to_string(end) +
                   " must follow; give each host the part behind that of the host before it, and "
                   "place ranks with mpirun --map-by slot");
        }
        size_t last = rank + 1;
        while (last < rows.size() && rows[last].first == part.first && rows[last].last == part.last)
            ++last;
        const Ownership shared(part.last - part.first, static_cast<int>(last - rank));
        for (int sharer = 0; sharer < shared.ranks(); ++sharer) {
            begins.push_back(part.first + shared.begin(sharer));
        }
        end = part.last;
        parted.entries += entries[rank];
        ++parted.parts;
        rank = last;
    }
    if (end != graph.nodes()) {
        refuse("the last rank's part ends at row " + std::to_string(end - 1) + " of " +
               std::to_string(graph.nodes()) + "; start ranks on the hosts of all parts");
    }
    begins.push_back(end);
    parted.owners = Ownership(std::move(begins));
    return parted;
}

void check_same_utilities(Communicator& world, UtilityInput& utility) {
    constexpr int64_t kLooked = 64;
    std::string text = utility.kind() + ", " + utility.corpus().data + ", " +
                       std::to_string(utility.corpus().seq_length);
    world.agree([&] {
        for (int64_t i = 0; i < kLooked; ++i) {
            int32_t value = 0;
            utility.read((utility.samples() - 1) * i / (kLooked - 1), std::span(&value, 1));
            text += " " + std::to_string(value);
        }
    });
    const std::vector<std::string> texts = gathered_texts(world, text);
    for (size_t rank = 1; rank < texts.size(); ++rank) {
        if (texts[rank] == texts.front()) continue;
        throw AgreedError(ExitCode::usage, "--utility " + utility.path() + ": rank " +
                                               std::to_string(rank) +
                                               " sees other utilities than rank 0; give all hosts "
                                               "the same file");
    }
}

std::string graph_part_name(const std::string& output, int part, int parts) {
    const std::filesystem::path path(output);
    return (path.parent_path() / path.stem()).string() + format("-%05d-of-%05d", part + 1, parts) +
           path.extension().string();
}

void split_graph(const GraphFile& graph, int parts, const std::string& output,
                 const std::function<void(int64_t done)>& progress) {
    const Ownership ranges(graph.nodes(), parts);
    GraphRows rows(graph);
    World::threads(1).run([&](Communicator& world) {
        for (int part = 0; part < parts; ++part) {
            const PartRows range{.first = ranges.begin(part), .last = ranges.end(part)};
            std::vector<int64_t> begins{0};
            int64_t entries = 0;
            for (int64_t v = range.first; v < range.last; ++v) entries += rows.degree(v);
            GraphOutput file(world, graph_part_name(output, part, parts), graph.corpus(), range,
                             entries, graph.metadata());
            std::vector<int64_t> neighbours;
            std::vector<int32_t> similarities;
            int64_t first_begin = 0;
            int64_t first_entry = 0;
            const auto write_entries = [&] {
                file.write_entries(first_entry, neighbours, similarities);
                first_entry += std::ssize(neighbours);
                neighbours.clear();
                similarities.clear();
            };
            for (int64_t v = range.first; v < range.last; ++v) {
                const GraphRow row = rows.at(v);
                neighbours.insert(neighbours.end(), row.neighbours.begin(), row.neighbours.end());
                similarities.insert(similarities.end(), row.similarities.begin(),
                                    row.similarities.end());
                begins.push_back(first_entry + std::ssize(neighbours));
                if (neighbours.size() >= kEntriesAtOnce) write_entries();
                if (std::ssize(begins) < kBeginsAtOnce) continue;
                file.write_row_begin(first_begin, begins);
                first_begin += std::ssize(begins);
                begins.clear();
                if (progress) progress(v + 1);
            }
            write_entries();
            file.write_row_begin(first_begin, begins);
            file.publish();
        }
    });
}

}  // namespace vocabpipe
