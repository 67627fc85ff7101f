-- SPDX-License-Identifier: MIT OR Apache-2.0
--
-- A Wireshark dissector of the file transfer protocol Saratoga: version 0 (UDP port 4000, in the
-- layout that slowlight calls grc-perl-2011) and version 1 (UDP port 7542,
-- draft-wood-tsvwg-saratoga-22).
--
--     tshark -X lua_script:dissectors/saratoga.lua -r capture.pcapng
--
-- For good, copy it to the folder of personal Lua plugins (`tshark -G folders` tells where).
--
-- What slowlight's codec refuses gets the expert information saratoga.malformed, what was cut when
-- it was captured gets saratoga.cut. Bits are numbered as in the draft: 0 is the most significant
-- of the first 32-bit word.

local saratoga = Proto("saratoga", "Saratoga File Transfer Protocol")

local PORT_V0 = 4000
local PORT_V1 = 7542
local PATH_MAX = 1024
local TIMESTAMP_LEN = 16
-- Bytes of a version 0 DATA packet without its data.
local DATA_OVERHEAD_V0 = 10
-- Bytes of a version 0 STATUS packet with one hole.
local STATUS_MORE_V0 = 15
-- Holes that the info column shows; the tree shows all.
local HOLES_SHOWN = 4

local BEACON, REQUEST, METADATA, DATA, STATUS = 0, 1, 2, 3, 4

local TYPES = {
    [BEACON] = "BEACON",
    [REQUEST] = "REQUEST",
    [METADATA] = "METADATA",
    [DATA] = "DATA",
    [STATUS] = "STATUS",
}

-- Bytes of a descriptor.
local BYTES = { [0] = 2, [1] = 4, [2] = 8, [3] = 16 }

local WIDTHS = { [0] = "16 bits", [1] = "32 bits", [2] = "64 bits", [3] = "128 bits" }

local CONTENTS = { [0] = "file", [1] = "directory", [2] = "bundle", [3] = "stream" }

local ENTRIES = {
    [0] = "file",
    [1] = "directory",
    [2] = "special file",
    [3] = "special directory",
}

local ABILITIES = {
    [0] = "no",
    [1] = "willing but not able (invalid)",
    [2] = "able but not now",
    [3] = "yes",
}

local REQUESTS = {
    [0] = "no-op",
    [1] = "get",
    [2] = "put",
    [3] = "take",
    [4] = "give",
    [5] = "delete",
    [6] = "getdir",
}

local CHECKSUMS = { [0] = "none", [1] = "CRC-32C", [2] = "MD5", [3] = "SHA-1" }

local STATUSES = {
    [0x00] = "ok",
    [0x01] = "unspecified error",
    [0x02] = "sender lacks resources",
    [0x03] = "receiver lacks resources",
    [0x04] = "file not found",
    [0x05] = "access denied",
    [0x06] = "unknown session",
    [0x07] = "file not deleted",
    [0x08] = "file too long",
    [0x09] = "descriptor mismatch",
    [0x0a] = "unsupported packet type",
    [0x0b] = "unsupported request",
    [0x0c] = "request timed out",
    [0x0d] = "flags of DATA changed",
    [0x0e] = "receiver not interested any more",
    [0x0f] = "file in use",
    [0x10] = "METADATA required",
    [0x11] = "unexpected STATUS",
    [0x12] = "sender timed out",
}

local fields = {
    version = ProtoField.uint8("saratoga.version", "Version"),
    type = ProtoField.uint8("saratoga.type", "Type", base.DEC, TYPES),
    flags = ProtoField.uint32("saratoga.flags", "Flags", base.HEX),
    descriptor = ProtoField.uint8("saratoga.descriptor", "Descriptor", base.DEC, WIDTHS),
    content = ProtoField.uint8("saratoga.content", "Content", base.DEC, CONTENTS),
    sends = ProtoField.uint8("saratoga.sends", "Sends", base.DEC, ABILITIES),
    receives = ProtoField.uint8("saratoga.receives", "Receives", base.DEC, ABILITIES),
    bundles = ProtoField.bool("saratoga.flags.bundles", "Takes bundles"),
    streams = ProtoField.bool("saratoga.flags.streams", "Takes streams"),
    udp_lite = ProtoField.bool("saratoga.flags.udp_lite", "UDP-Lite"),
    has_space = ProtoField.bool("saratoga.flags.free_space", "Free space told"),
    over = ProtoField.bool("saratoga.flags.over", "Transfer over"),
    stamped = ProtoField.bool("saratoga.flags.timestamp", "Timestamp present"),
    wants_status = ProtoField.bool("saratoga.flags.status_requested", "STATUS requested"),
    eod = ProtoField.bool("saratoga.flags.eod", "End of data"),
    poll = ProtoField.bool("saratoga.flags.poll", "Poll"),
    no_metadata = ProtoField.bool("saratoga.flags.metadata_missing", "METADATA missing"),
    partial = ProtoField.bool("saratoga.flags.partial", "More holes than told"),
    voluntary = ProtoField.bool("saratoga.flags.voluntary", "Voluntary"),
    request = ProtoField.uint8("saratoga.request", "Request", base.DEC, REQUESTS),
    session = ProtoField.uint32("saratoga.session", "Session", base.HEX),
    space_width = ProtoField.uint8("saratoga.free_space.width", "Width", base.DEC, WIDTHS),
    space = ProtoField.uint64("saratoga.free_space", "Free space (KiB)"),
    eid = ProtoField.string("saratoga.eid", "Endpoint"),
    path = ProtoField.string("saratoga.path", "Path"),
    auth = ProtoField.bytes("saratoga.authentication", "Authentication"),
    checksum = ProtoField.bytes("saratoga.checksum", "Checksum"),
    checksum_type = ProtoField.uint8("saratoga.checksum.type", "Type", base.DEC, CHECKSUMS),
    checksum_len = ProtoField.uint8("saratoga.checksum.length", "Length (32-bit words)"),
    properties = ProtoField.uint16("saratoga.entry.properties", "Properties", base.HEX),
    entry_kind = ProtoField.uint8("saratoga.entry.kind", "Kind", base.DEC, ENTRIES),
    entry_width = ProtoField.uint8("saratoga.entry.width", "Width of size", base.DEC, WIDTHS),
    entry_lite = ProtoField.bool("saratoga.entry.udp_lite", "UDP-Lite"),
    size = ProtoField.uint64("saratoga.size", "Size"),
    modified = ProtoField.uint32("saratoga.modified", "Modified (s since 2000-01-01)"),
    created = ProtoField.uint32("saratoga.created", "Created (s since 2000-01-01)"),
    timestamp = ProtoField.bytes("saratoga.timestamp", "Timestamp"),
    offset = ProtoField.uint64("saratoga.offset", "Offset"),
    data = ProtoField.bytes("saratoga.data", "Data"),
    data_len = ProtoField.uint32("saratoga.data.length", "Data length"),
    status = ProtoField.uint8("saratoga.status", "Status", base.HEX, STATUSES),
    progress = ProtoField.uint64("saratoga.progress", "Progress"),
    in_response_to = ProtoField.uint64("saratoga.in_response_to", "In response to"),
    hole = ProtoField.none("saratoga.hole", "Hole"),
    hole_start = ProtoField.uint64("saratoga.hole.start", "First missing byte"),
    hole_end = ProtoField.uint64("saratoga.hole.end", "Last missing byte"),
    hole_count = ProtoField.uint32("saratoga.hole.count", "Holes"),
    ignored = ProtoField.bytes("saratoga.ignored", "Ignored bytes"),
}

local list = {}
for _, field in pairs(fields) do
    list[#list + 1] = field
end
saratoga.fields = list

local experts = {
    malformed = ProtoExpert.new(
        "saratoga.malformed", "Malformed packet",
        expert.group.MALFORMED, expert.severity.ERROR
    ),
    cut = ProtoExpert.new(
        "saratoga.cut", "The packet was cut when it was captured",
        expert.group.UNDECODED, expert.severity.NOTE
    ),
    failure = ProtoExpert.new(
        "saratoga.failure", "The peer reports a failure",
        expert.group.RESPONSE_CODE, expert.severity.NOTE
    ),
    value = ProtoExpert.new(
        "saratoga.undefined", "A value that the draft does not define",
        expert.group.PROTOCOL, expert.severity.WARN
    ),
}
saratoga.experts = { experts.malformed, experts.cut, experts.failure, experts.value }

-- Reads fields one after the other, and adds each to the tree. No field is read that is not
-- there: a read beyond the end stops the dissection with a complaint, as do other mistakes.
local Reader = {}
Reader.__index = Reader

function Reader.new(tvb, tree)
    local reader = { tvb = tvb, tree = tree, at = 0, len = tvb:captured_len(), info = {} }
    return setmetatable(reader, Reader)
end

-- A complaint is a table, so that it cannot be taken for an error of this script.
local function complain(text)
    error({ complaint = text })
end

function Reader:left()
    return self.len - self.at
end

function Reader:take(count, what)
    if count > self:left() then
        error({ complaint = what .. " is cut short", is_short = true })
    end
    local range = self.tvb:range(self.at, count)
    self.at = self.at + count
    return range
end

-- A field of so many bytes, of a type that Wireshark reads by itself.
function Reader:field(field, count, what)
    local range = self:take(count, what)
    return self.tree:add(field, range), range
end

-- An unsigned integer of the width of a descriptor. Of 128 bits the upper 64 must be zero, as no
-- file is longer.
function Reader:wide(field, width, what, tree)
    local range = self:take(BYTES[width], what)
    if width < 3 then
        local value = range:uint64()
        return value, (tree or self.tree):add(field, range)
    end
    local value = range:range(8, 8):uint64()
    local item = (tree or self.tree):add(field, range, value)
    if range:range(0, 8):uint64() ~= UInt64(0) then
        complain(what .. " exceeds 64 bits")
    end
    return value, item
end

-- What is left of the packet, if anything is.
function Reader:rest(field)
    local count = self:left()
    if count > 0 then
        self.tree:add(field, self:take(count, "the rest"))
    end
    return count
end

-- A path and the NUL behind it.
function Reader:path()
    local count = math.min(self:left(), PATH_MAX)
    -- At the end of the packet there is nothing to look at.
    local nul = count > 0 and self.tvb:raw(self.at, count):find("\0", 1, true)
    if not nul then
        error({ complaint = "the path has no end", is_short = self:left() < PATH_MAX })
    end
    local range = self:take(nul, "the path")
    local path = nul > 1 and range:range(0, nul - 1):string() or ""
    self.tree:add(fields.path, range, path)
    self:say('"' .. path .. '"')
end

function Reader:session()
    local _, range = self:field(fields.session, 4, "the session")
    table.insert(self.info, 1, string.format("%08x", range:uint()))
end

-- Adds words to the info column.
function Reader:say(text)
    self.info[#self.info + 1] = text
end

-- Pairs of first and last byte up to the end of the packet. Of version 0 a remainder is ignored.
function Reader:holes(width, ignores_remainder)
    local size = 2 * BYTES[width]
    local count = 0
    while self:left() >= size or (self:left() > 0 and not ignores_remainder) do
        local at = self.at
        local tree = self.tree:add(fields.hole, self.tvb:range(at, math.min(size, self:left())))
        local first = self:wide(fields.hole_start, width, "a hole", tree)
        local last = self:wide(fields.hole_end, width, "a hole", tree)
        local text = tostring(first) .. "..=" .. tostring(last)
        tree:append_text(": " .. text)
        if last < first then
            complain("a hole ends before it begins")
        end
        count = count + 1
        if count <= HOLES_SHOWN then
            self:say(text)
        end
    end
    if count > HOLES_SHOWN then
        self:say(string.format("and %d more", count - HOLES_SHOWN))
    end
    self.tree:add(fields.hole_count, count):set_generated()
end

function Reader:payload(offset, end_max)
    -- Of a packet that was cut when it was captured, this is more than can be shown.
    local count = self.tvb:reported_len() - self.at
    local last = offset + UInt64(count)
    self.tree:add(fields.data_len, count):set_generated()
    self:rest(fields.data)
    -- A sum beyond 64 bits is less than its parts.
    if last < offset or (end_max and last > end_max) then
        complain("the data ends too far behind")
    end
    self:say(tostring(offset) .. ".." .. tostring(last))
end

-- A flag of the given bit; its words go to the info column if it is set.
function Reader:flag(head, field, bit, words)
    local value = head:bitfield(bit, 1) == 1
    self.flags:add(field, head, value)
    if value and words then
        self:say(words)
    end
    return value
end

function Reader:code(head, field, bit, count, tree)
    local value = head:bitfield(bit, count)
    return value, (tree or self.flags):add(field, head, value)
end

function Reader:status(code, range)
    local item = self.tree:add(fields.status, range)
    if not STATUSES[code] then
        item:add_proto_expert_info(experts.value, "The status is undefined")
    end
    if code ~= 0 then
        item:add_proto_expert_info(experts.failure)
    end
    self:say(STATUSES[code] or string.format("status 0x%02x", code))
end

-- Version 1, by type. `head` is the first word.
local v1 = {}

v1[BEACON] = function(reader, head)
    reader:code(head, fields.descriptor, 8, 2)
    reader:flag(head, fields.bundles, 10)
    reader:flag(head, fields.streams, 11)
    local sends = reader:code(head, fields.sends, 12, 2)
    local receives = reader:code(head, fields.receives, 14, 2)
    reader:flag(head, fields.udp_lite, 16)
    if reader:flag(head, fields.has_space, 17) then
        local width = reader:code(head, fields.space_width, 18, 2)
        reader:wide(fields.space, width, "the free space")
    end
    if reader:left() > 0 then
        local _, range = reader:field(fields.eid, reader:left(), "the name")
        reader:say('"' .. range:string() .. '"')
    end
    if sends == 1 or receives == 1 then
        complain("somebody is willing to do what it cannot")
    end
end

v1[REQUEST] = function(reader, head)
    reader:code(head, fields.descriptor, 8, 2)
    reader:flag(head, fields.bundles, 10)
    reader:flag(head, fields.streams, 11)
    reader:flag(head, fields.udp_lite, 16)
    local request, item = reader:code(head, fields.request, 24, 8, reader.tree)
    if not REQUESTS[request] then
        item:add_proto_expert_info(experts.value, "The request is undefined")
    end
    reader:say(REQUESTS[request] or ("request " .. request))
    reader:session()
    reader:path()
    reader:rest(fields.auth)
end

-- A directory entry, which ends the packet; only NULs may follow it.
local function entry(reader)
    local _, properties = reader:field(fields.properties, 2, "the entry")
    reader:code(properties, fields.entry_kind, 6, 2, reader.tree)
    local width = reader:code(properties, fields.entry_width, 8, 2, reader.tree)
    reader.tree:add(fields.entry_lite, properties, properties:bitfield(13, 1) == 1)
    if properties:bitfield(0, 1) == 0 then
        complain("the first bit of the entry's properties is 0")
    end
    local size = reader:wide(fields.size, width, "the size")
    reader:field(fields.modified, 4, "the time of modification")
    reader:field(fields.created, 4, "the time of creation")
    reader:path()
    reader:say(tostring(size) .. " B")
    if reader:left() > 0 then
        local padding = reader.tvb:raw(reader.at, reader:left())
        reader:rest(fields.ignored)
        if padding:find("[^\0]") then
            complain("something follows the path")
        end
    end
end

v1[METADATA] = function(reader, head)
    reader:code(head, fields.descriptor, 8, 2)
    local content = reader:code(head, fields.content, 10, 2)
    reader:say(CONTENTS[content])
    local over = reader:flag(head, fields.over, 12)
    reader:flag(head, fields.udp_lite, 13)
    local words = reader:code(head, fields.checksum_len, 24, 4, reader.tree)
    local kind, item = reader:code(head, fields.checksum_type, 28, 4, reader.tree)
    local lengths = { [0] = 0, [1] = 1, [2] = 4, [3] = 5 }
    if lengths[kind] ~= words then
        item:add_proto_expert_info(experts.value, "The checksum's type or length is undefined")
    end
    reader:session()
    if words > 0 then
        reader:field(fields.checksum, 4 * words, "the checksum")
    end
    entry(reader)
    if over then
        reader:say("over")
    end
end

v1[DATA] = function(reader, head)
    local width = reader:code(head, fields.descriptor, 8, 2)
    reader:code(head, fields.content, 10, 2)
    local stamped = reader:flag(head, fields.stamped, 12)
    local wants_status = reader:flag(head, fields.wants_status, 15)
    local eod = reader:flag(head, fields.eod, 16)
    reader:session()
    if stamped then
        reader:field(fields.timestamp, TIMESTAMP_LEN, "the timestamp")
    end
    local offset = reader:wide(fields.offset, width, "the offset")
    reader:payload(offset)
    if eod then
        reader:say("EOD")
    end
    if wants_status then
        reader:say("STATUS requested")
    end
end

v1[STATUS] = function(reader, head)
    local width = reader:code(head, fields.descriptor, 8, 2)
    local stamped = reader:flag(head, fields.stamped, 12)
    reader:flag(head, fields.no_metadata, 13, "METADATA missing")
    local partial = reader:flag(head, fields.partial, 14)
    reader:flag(head, fields.voluntary, 15, "voluntary")
    reader:status(head:bitfield(24, 8), head:range(3, 1))
    reader:session()
    if stamped then
        reader:field(fields.timestamp, TIMESTAMP_LEN, "the timestamp")
    end
    local progress = reader:wide(fields.progress, width, "the progress")
    local response = reader:wide(fields.in_response_to, width, "what it is in response to")
    reader:say(tostring(progress) .. " of " .. tostring(response))
    reader:holes(width, false)
    if partial then
        reader:say("and others")
    end
end

-- Version 0, by type. `head` is the first two bytes.
local v0 = {}

v0[BEACON] = function(reader)
    if reader:left() > 0 then
        local _, range = reader:field(fields.eid, reader:left(), "the name")
        reader:say('"' .. range:string() .. '"')
    end
end

v0[REQUEST] = function(reader)
    reader:session()
    reader:path()
    reader:rest(fields.ignored)
end

v0[METADATA] = function(reader)
    reader:session()
    local size = reader:wide(fields.size, 1, "the length")
    reader:path()
    reader:say(tostring(size) .. " B")
    reader:rest(fields.ignored)
end

v0[DATA] = function(reader, head)
    local poll = reader:flag(head, fields.poll, 14)
    local wants_status = reader:flag(head, fields.wants_status, 15)
    reader:session()
    local offset, item = reader:wide(fields.offset, 1, "the offset")
    if poll then
        -- The type is that of DATA, so the words that tell it must be others.
        reader:say("poll at " .. tostring(offset))
        reader:field(fields.ignored, 8, "the poll")
        reader:rest(fields.ignored)
        return
    end
    local is_empty = reader.tvb:reported_len() == DATA_OVERHEAD_V0
    if is_empty and offset == UInt64(0) and not wants_status then
        item:append_text(" (acceptance)")
        reader:say("acceptance")
        return
    end
    reader:payload(offset, UInt64(0xffffffff))
    if wants_status then
        reader:say("STATUS requested")
    end
end

v0[STATUS] = function(reader, head)
    -- The bit of version 1 says the opposite.
    local no_metadata = head:bitfield(14, 1) == 0
    reader.flags:add(fields.no_metadata, head, no_metadata)
    local partial = reader:flag(head, fields.partial, 15)
    reader:session()
    local range = reader:take(1, "the status")
    reader:status(range:uint(), range)
    if no_metadata then
        reader:say("METADATA missing")
    end
    reader:holes(1, true)
    reader:rest(fields.ignored)
    if partial then
        reader:say("and others")
    elseif reader.tvb:reported_len() < STATUS_MORE_V0 and not no_metadata and range:uint() == 0 then
        reader:say("complete")
    end
end

-- The first word of version 1 and the first two bytes of version 0 hold all their flags.
local VERSIONS = {
    [0] = { dissectors = v0, head_len = 2 },
    [1] = { dissectors = v1, head_len = 4 },
}

-- `about` gets what the info column shows first.
local function dissect(reader, about)
    local first = reader:take(1, "the header")
    -- Of the drafts of 2007 (0x40 to 0x44) the version would be read as 2.
    local number = first:bitfield(0, 3)
    reader.tree:add(fields.version, first, number)
    local version = VERSIONS[number]
    if not version then
        complain("version " .. number .. " is unknown")
    end
    reader.at = 0
    local head = reader:take(version.head_len, "the header")
    local code = first:bitfield(3, 5)
    reader.tree:add(fields.type, first, code)
    about.type = TYPES[code]
    local flags = head:range(1)
    reader.flags = reader.tree:add(fields.flags, flags)
    if not about.type then
        complain("the packet type is undefined")
    end
    about.name = "v" .. number .. " " .. about.type
    reader.tree:append_text(", version " .. number .. ", " .. about.type)
    version.dissectors[code](reader, head)
end

function saratoga.dissector(tvb, pinfo, tree)
    pinfo.cols.protocol = "Saratoga"
    local subtree = tree:add(saratoga, tvb())
    local reader = Reader.new(tvb, subtree)
    local about = { name = "unknown" }
    local well, problem = pcall(dissect, reader, about)
    local is_cut = tvb:captured_len() < tvb:reported_len()
    if is_cut then
        subtree:add_proto_expert_info(experts.cut)
        reader:say("[cut]")
    end
    if not well then
        if type(problem) ~= "table" then
            -- An error of this script, which Wireshark shows.
            error(problem, 0)
        end
        if not (is_cut and problem.is_short) then
            local text = "Malformed: " .. problem.complaint
            subtree:add_proto_expert_info(experts.malformed, text)
            reader:say("[malformed: " .. problem.complaint .. "]")
        end
    end
    pinfo.cols.info = about.name .. " " .. table.concat(reader.info, " ")
    return tvb:captured_len()
end

local ports = DissectorTable.get("udp.port")
ports:add(PORT_V0, saratoga)
ports:add(PORT_V1, saratoga)
