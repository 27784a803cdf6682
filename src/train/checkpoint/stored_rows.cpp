// SPDX-License-Identifier: Apache-2.0
#include "src/train/checkpoint/stored_rows.hpp"

#include "src/model/model_rank_internals.hpp"
#include "src/support/crc32c.hpp"
#include "src/train/checkpoint/model_tensors.hpp"

#include <algorithm>
#include <string>

namespace vocabpipe {

namespace {

/// Written in blocks, so that the checksum and the write find them in the second cache.
constexpr int64_t kBlockBytes = int64_t{512} << 10;
constexpr int64_t kSquare = 64;  // tile size in elements; a tile stays in the first cache

/// out (count, rows) = transpose of the columns [first, first + count).
template <typename T>
void transpose(const std::byte* from, const StoredRows& of, int64_t first, int64_t count,
               std::byte* to) {
    const T* const in = reinterpret_cast<const T*>(from);
    T* const out = reinterpret_cast<T*>(to);
    for (int64_t r0 = 0; r0 < of.rows; r0 += kSquare) {
        for (int64_t c0 = 0; c0 < count; c0 += kSquare) {
            for (int64_t c = c0; c < std::min(count, c0 + kSquare); ++c) {
                for (int64_t r = r0; r < std::min(of.rows, r0 + kSquare); ++r) {
                    out[c * of.rows + r] = in[r * of.cols + first + c];
                }
            }
        }
    }
}

/// Calls `put` with the contiguous runs of some lines, in the order of the file. `bytes`: of the
/// lines from the matrix' line `first` on.
template <typename Put>
void put_lines(const StoredRows& rows, int64_t first, std::span<const std::byte> bytes,
               const Put& put) {
    const int64_t held = rows.transposed ? rows.rows : rows.cols;  // elements of a line
    const auto size = [&](int64_t elements) {
        return static_cast<size_t>(elements * rows.item_bytes);
    };
    const int64_t end = first + static_cast<int64_t>(bytes.size() / size(held));
    int64_t before = 0;  // lines of the matrix before the range
    for (const TensorShard::Range& lines : rows.lines) {
        const int64_t from = std::max(first, before);
        const int64_t to = std::min(end, before + lines.count);
        const int64_t to_stored = lines.first - before;
        before += lines.count;
        if (from >= to) continue;
        std::span<const std::byte> rest = bytes.subspan(size((from - first) * held));
        if (held == rows.line_size) {
            put(rows.offset(from + to_stored, 0), rest.first(size((to - from) * held)));
            continue;
        }
        for (int64_t line = from; line < to; ++line) {
            for (const TensorShard::Range& run : rows.elements) {
                put(rows.offset(line + to_stored, run.first), rest.first(size(run.count)));
                rest = rest.subspan(size(run.count));
            }
        }
    }
}

}  // namespace

std::vector<StoredRows> stored_rows(ModelRank& model, std::span<const SafetensorsPlan> plans) {
    std::vector<StoredRows> all;
    const auto add = [&](const std::string& name, const HeldRows& held, Tensor of, int64_t height,
                         bool transposed) {
        uint32_t file = 0;
        while (!plans[file].has(name)) ++file;
        const Tensor rows = held.of(of);
        if (rows.size() == 0) return;  // a vocabulary shard may be empty
        all.push_back({.data = static_cast<const std::byte*>(rows.data),
                       .rows = rows.rows,
                       .cols = rows.cols,
                       .item_bytes = size_of(rows.dtype),
                       .transposed = transposed,
                       .file = file,
                       .tensor = plans[file].at(name).begin,
                       .line_size = transposed ? height : held.width,
                       .lines = transposed ? held.columns : std::vector{held.rows},
                       .elements = transposed ? std::vector{held.rows} : held.columns});
    };
    const std::vector<std::vector<ModelTensor>> stored = model_tensors(model.config());
    const std::vector<Parameter>& parameters = ModelRankInternals::store(model).parameters();
    for (size_t i = 0; i < parameters.size(); ++i) {
        const Parameter& p = parameters[i];
        if (p.counted_elsewhere) continue;  // the tied copy: written with the embedding
        // The owner of its first row writes a transposed matrix as a whole, if it has it.
        const bool head = p.owned.first == 0 && p.owned.count != 0;
        for (const ModelTensor& t :
             stored[static_cast<size_t>(ModelRankInternals::store(model).ids()[i])]) {
            const int64_t height = t.held_shape[0];
            for (const HeldRows& owned : owned_rows(p, t)) {
                if (!t.transposed || p.shards_weight) {
                    add(t.name, owned, p.owned_weight, height, t.transposed);
                }
                if (!p.exp_avg) continue;  // a correction bias, or frozen
                add(exp_avg_name(t.name), owned, p.exp_avg, height, false);
                add(exp_avg_sq_name(t.name), owned, p.exp_avg_sq, height, false);
                if (p.weight.dtype != DType::fp32) {
                    add(master_name(t.name), owned, p.master, height, false);
                }
            }
            if (!t.transposed || !head || p.shards_weight) continue;
            for (const HeldRows& held : held_rows(p, t)) add(t.name, held, p.weight, height, true);
        }
    }
    return all;
}

void write_rows(std::span<const StoredRows> all, SharedOutputFile& file, Device* device,
                const std::atomic<bool>& stop, std::vector<Piece>& pieces) {
    std::vector<std::byte> downloaded, turned;
    const auto on_host = [&](const std::byte* data, int64_t bytes) -> std::span<const std::byte> {
        if (device == nullptr) return {data, static_cast<size_t>(bytes)};
        downloaded.resize(static_cast<size_t>(bytes));
        device->download(data, downloaded);
        return downloaded;
    };
    const auto put = [&](uint64_t at, std::span<const std::byte> bytes) {
        Piece& piece = pieces.back();
        const uint64_t end = at + bytes.size();
        piece.crc = piece.end == at ? crc32c(bytes, piece.crc)
                                    : crc32c_combine(piece.crc, crc32c(bytes), end - piece.end);
        file.write_at(at, bytes);
        piece.end = end;
        piece.bytes += bytes.size();
    };
    for (const StoredRows& rows : all) {
        if (rows.bytes() == 0 || stop) continue;
        const uint64_t begin = rows.offset(rows.lines.front().first, rows.elements.front().first);
        pieces.push_back({.begin = begin, .end = begin, .file = rows.file});
        std::span<const std::byte> matrix;  // to be transposed
        if (rows.transposed) matrix = on_host(rows.data, static_cast<int64_t>(rows.bytes()));
        const int64_t lines = rows.transposed ? rows.cols : rows.rows;
        const int64_t line_bytes = static_cast<int64_t>(rows.bytes()) / lines;
        const int64_t band = std::max<int64_t>(1, kBlockBytes / line_bytes);
        for (int64_t first = 0; first < lines && !stop; first += band) {
            const int64_t count = std::min(band, lines - first);
            if (!rows.transposed) {
                put_lines(rows, first, on_host(rows.data + first * line_bytes, count * line_bytes),
                          put);
                continue;
            }
            turned.resize(static_cast<size_t>(count * line_bytes));
            if (rows.item_bytes == 4) {
                transpose<uint32_t>(matrix.data(), rows, first, count, turned.data());
            } else {
                transpose<uint16_t>(matrix.data(), rows, first, count, turned.data());
            }
            put_lines(rows, first, turned, put);
        }
    }
}

}  // namespace vocabpipe
