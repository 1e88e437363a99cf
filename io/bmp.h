// SPDX-License-Identifier: Apache-2.0
// Pixels of BMP files.
#ifndef IO_BMP_H_
#define IO_BMP_H_

#include <string_view>

#include "io/image_size.h"
#include "millrace/status.h"

namespace millrace {

// Files without palette or compression: grey, RGB or RGBA of 8 bits. `channels` is 3 or 4, or 0 for
// those of the file. InvalidArgument for others, for files whose size is not what their header
// says, and for images of more than kMostImageBytes.
Status DecodeBmp(std::string_view file, int channels, const PixelRoom& room);

}  // namespace millrace

#endif  // IO_BMP_H_
