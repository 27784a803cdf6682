// SPDX-License-Identifier: Apache-2.0
#include "src/train/checkpoint/stored_rows.hpp"

#include "src/model/model_rank_internals.hpp"
#include "src/support/crc32c.hpp"
#include "src/train/checkpoint/model_tensors.hpp"

#include <algorithm>
#include <string>

namespace vocabpipe {

namespace {

/// On their way from the device to a file: summed up and written while in the second cache.
constexpr int64_t kBlockBytes = int64_t{512} << 10;
constexpr int64_t kSquare = 64;  // elements; rows and columns of a tile stay in the first cache

/// out (cols, rows) = in^T of its columns [first, first + count).
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

}  // namespace

std::vector<StoredRows> stored_rows(ModelRank& model, std::span<const SafetensorsPlan> plans) {
    std::vector<StoredRows> all;
    const auto add = [&](const std::string& name, const HeldRows& held, Tensor of,
                         bool transposed) {
        uint32_t file = 0;
        while (!plans[file].has(name)) ++file;
        const Tensor rows = held.of(of);
        if (rows.size() == 0) return;  // a vocabulary shard may be empty
        const int64_t item_bytes = size_of(rows.dtype);
        const auto before = static_cast<uint64_t>(held.first * rows.cols * item_bytes);
        all.push_back({.data = static_cast<const std::byte*>(rows.data),
                       .rows = rows.rows,
                       .cols = rows.cols,
                       .item_bytes = item_bytes,
                       .transposed = transposed,
                       .file = file,
                       .offset = plans[file].at(name).begin + before});
    };
    const std::vector<std::vector<ModelTensor>> stored = model_tensors(model.config());
    const std::vector<Parameter>& parameters = ModelRankInternals::store(model).parameters();
    for (size_t i = 0; i < parameters.size(); ++i) {
        const Parameter& p = parameters[i];
        if (p.counted_elsewhere) continue;  // the tied copy: written with the embedding
        for (const ModelTensor& t :
             stored[static_cast<size_t>(ModelRankInternals::store(model).ids()[i])]) {
            const HeldRows owned = owned_rows(p, t);
            if (!t.transposed) {
                add(t.name, owned, p.owned.of(p.weight), false);
            } else if (owned.count > 0 && owned.first == 0) {
                add(t.name, held_rows(p, t), p.weight, true);  // whole, by the owner of its head
            }
            if (t.correction_bias) continue;  // has no moments
            add(exp_avg_name(t.name), owned, p.exp_avg, false);
            add(exp_avg_sq_name(t.name), owned, p.exp_avg_sq, false);
            if (p.weight.dtype != DType::fp32) add(master_name(t.name), owned, p.master, false);
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
    const auto put = [&](std::span<const std::byte> bytes) {
        Piece& piece = pieces.back();
        piece.crc = crc32c(bytes, piece.crc);
        file.write_at(piece.begin + piece.bytes, bytes);
        piece.bytes += bytes.size();
    };
    for (const StoredRows& rows : all) {
        pieces.push_back({.begin = rows.offset, .file = rows.file});
        const auto bytes = static_cast<int64_t>(rows.bytes());
        if (!rows.transposed) {
            for (int64_t at = 0; at < bytes && !stop; at += kBlockBytes) {
                put(on_host(rows.data + at, std::min(kBlockBytes, bytes - at)));
            }
            continue;
        }
        if (bytes == 0 || stop) continue;
        const std::span<const std::byte> matrix = on_host(rows.data, bytes);
        const int64_t row_bytes = rows.rows * rows.item_bytes;  // of the transposed matrix
        const int64_t band = std::max<int64_t>(1, kBlockBytes / row_bytes);
        for (int64_t first = 0; first < rows.cols && !stop; first += band) {
            const int64_t count = std::min(band, rows.cols - first);
            turned.resize(static_cast<size_t>(count * row_bytes));
            if (rows.item_bytes == 4) {
                transpose<uint32_t>(matrix.data(), rows, first, count, turned.data());
            } else {
                transpose<uint16_t>(matrix.data(), rows, first, count, turned.data());
            }
            put(turned);
        }
    }
}

}  // namespace vocabpipe
