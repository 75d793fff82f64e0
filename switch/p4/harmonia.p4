// A switch that spreads linearizable reads over all replicas (Harmonia, PVLDB 13(3)), as a program in P4_16 for v1model.
//
// It treats packets as `Pipeline::process` in `../src/pipeline.rs` does, and has no further features. Packets have the layout
// of `../header/src/lib.rs`. The program reads their first 48 bytes. It forwards the bytes behind these (lengths, an address
// for the answer, a key, a value) unchanged, so replicas refuse packets with wrong content there.
//
// A controller's settings are in tables, for P4Runtime cannot write registers on every target:
//
//   here                                    in ../src/tables.rs
//   partitions: entry of a partition        Partition, all but its replicas; one entry, so that no packet sees half of a
//                                           change
//     index                                 Partition::index, the place in partition_state
//     term, switch_id, active, primary      the same
//     first, slots                          Partition::region, the same slots of each stage
//   replicas: actions and weights           Partition::replicas; a partition without an entry has none
//   ports: address and port of a replica    the address for a replica's number
//   ipv4_lpm, ipv6_lpm                      nothing: in software the system routes
//
// Fields that packets change are in registers:
//
//   here                                    in ../src/pipeline.rs, ../src/dirty.rs
//   partition_state: partition, switch,     Register
//     sequence, committed
//   stage_0 to stage_2: partition, switch,  Slot, one array for each stage
//     object, sequence
//
// No controller ever clears a register. Its content counts only for a partition and switch id equal to those that it bears: a
// new switch id makes all former content void.
//
// Everything else is forwarded as by any router: IPv4 by `ipv4_lpm`, IPv6 by `ipv6_lpm`. Packets of this protocol over IPv6 are
// forwarded in that way, too: no read of them is spread, and none of their writes is numbered.
//
// Source addresses are not checked: the network must keep all hosts but replicas from sending writes and completions.
//
// BMv2 lets one packet at a time through the ingress; elsewhere, all accesses to one register are one atomic operation.

#include <core.p4>
#include <v1model.p4>

const bit<16> ETHERNET_IPV4 = 0x0800;
const bit<16> ETHERNET_IPV6 = 0x86dd;
const bit<8> IP_UDP = 17;

const bit<16> UDP_PORT = 6477;
const bit<16> MAGIC = 0x484d;
const bit<8> VERSION = 1;

// Stands for no object: a write of it is numbered, and makes nothing dirty.
const bit<32> NO_OBJECT = 0;

const bit<8> READ = 1;
const bit<8> FAST_READ = 2;
const bit<8> WRITE_FIRST = 3;
const bit<8> WRITE_REST = 4;
const bit<8> REPLY = 5;
const bit<8> COMPLETION = 6;

// Indexes in `verdicts`.
const bit<32> READS_SINGLE = 0;
const bit<32> READS_PRIMARY = 1;
const bit<32> WRITES = 2;
const bit<32> WRITE_RESTS = 3;
const bit<32> COMPLETIONS = 4;
const bit<32> REPLIES = 5;
const bit<32> NO_PARTITION = 6;
const bit<32> FULL = 7;
const bit<32> STALE = 8;
const bit<32> NO_PORT = 9;
const bit<32> MALFORMED = 10;

// Destinations of a packet of this protocol.
const bit<2> ON = 0;
const bit<2> TO_REPLICA = 1;
const bit<2> NOWHERE = 2;

header ethernet_t {
    bit<48> destination;
    bit<48> source;
    bit<16> ether_type;
}

header ipv4_t {
    bit<4> version;
    bit<4> words;
    bit<8> service;
    bit<16> bytes;
    bit<16> identification;
    bit<1> reserved;
    bit<1> whole;
    bit<1> more;
    bit<13> offset;
    bit<8> ttl;
    bit<8> protocol;
    bit<16> checksum;
    bit<32> source;
    bit<32> destination;
    varbit<320> options;
}

header ipv6_t {
    bit<4> version;
    bit<8> traffic_class;
    bit<20> flow_label;
    bit<16> bytes;
    bit<8> next_header;
    bit<8> hop_limit;
    bit<128> source;
    bit<128> destination;
}

header udp_t {
    bit<16> source;
    bit<16> destination;
    bit<16> bytes;
    bit<16> checksum;
}

header harmonia_t {
    bit<16> magic;
    bit<8> version;
    bit<8> operation;
    bit<32> partition;
    bit<32> object;
    bit<32> switch_id;
    bit<64> term;
    bit<64> sequence;
    bit<64> committed;
    bit<64> tag;
}

struct headers_t {
    ethernet_t ethernet;
    ipv4_t ipv4;
    ipv6_t ipv6;
    udp_t udp;
    harmonia_t harmonia;
}

struct metadata_t {
    // Fields of the packet's partition.
    bit<1> has_partition;
    bit<32> index;
    bit<64> term;
    bit<32> switch_id;
    bit<1> active;
    bit<32> primary;
    bit<32> first;
    bit<32> slots;
    // Replica that receives the packet.
    bit<32> chance;
    bit<1> has_replica;
    bit<1> has_port;
    bit<32> replica;
    bit<2> verdict;
}

parser HarmoniaParser(
    packet_in packet,
    out headers_t hdr,
    inout metadata_t meta,
    inout standard_metadata_t standard_metadata) {

    state start {
        packet.extract(hdr.ethernet);
        transition select(hdr.ethernet.ether_type) {
            ETHERNET_IPV4: parse_ipv4;
            ETHERNET_IPV6: parse_ipv6;
            default: accept;
        }
    }

    state parse_ipv4 {
        bit<8> begin = packet.lookahead<bit<8>>();
        bit<4> words = begin[3:0];
        // Fewer than five words are no header: nothing is valid then, and the packet is dropped.
        transition select(words) {
            4w0 &&& 4w12: accept;
            4w4: accept;
            default: parse_ipv4_whole;
        }
    }

    state parse_ipv4_whole {
        bit<8> begin = packet.lookahead<bit<8>>();
        bit<32> words = (bit<32>) begin[3:0];
        packet.extract(hdr.ipv4, (words - 32w5) << 5);
        // Of a fragmented packet, only the first fragment has the UDP header: fragments do not count as packets of this
        // protocol.
        transition select(hdr.ipv4.more, hdr.ipv4.offset, hdr.ipv4.protocol) {
            (1w0, 13w0, IP_UDP): parse_udp;
            default: accept;
        }
    }

    state parse_ipv6 {
        packet.extract(hdr.ipv6);
        transition accept;
    }

    state parse_udp {
        packet.extract(hdr.udp);
        transition select(hdr.udp.destination) {
            UDP_PORT: parse_begin;
            default: accept;
        }
    }

    state parse_begin {
        bit<24> begin = packet.lookahead<bit<24>>();
        bit<16> magic = begin[23:8];
        bit<8> version = begin[7:0];
        // Other versions are forwarded like any other packet.
        transition select(magic, version) {
            (MAGIC, VERSION): parse_harmonia;
            default: accept;
        }
    }

    state parse_harmonia {
        packet.extract(hdr.harmonia);
        transition accept;
    }
}

// Fields that checksums cover.
#define IPV4_SUMMED \
    { hdr.ipv4.version, hdr.ipv4.words, hdr.ipv4.service, hdr.ipv4.bytes, hdr.ipv4.identification, \
      hdr.ipv4.reserved, hdr.ipv4.whole, hdr.ipv4.more, hdr.ipv4.offset, hdr.ipv4.ttl, hdr.ipv4.protocol, \
      hdr.ipv4.source, hdr.ipv4.destination, hdr.ipv4.options }

#define UDP_SUMMED \
    { hdr.ipv4.source, hdr.ipv4.destination, 8w0, hdr.ipv4.protocol, hdr.udp.bytes, \
      hdr.udp.source, hdr.udp.destination, hdr.udp.bytes, \
      hdr.harmonia.magic, hdr.harmonia.version, hdr.harmonia.operation, hdr.harmonia.partition, \
      hdr.harmonia.object, hdr.harmonia.switch_id, hdr.harmonia.term, hdr.harmonia.sequence, \
      hdr.harmonia.committed, hdr.harmonia.tag }

// A stage of the dirty set. The stage's one slot for the packet's object is read. A numbered write that is in no stage yet
// takes the slot if its content does not count, or is of the same object.
#define STAGE(number, slots_of_stage) \
    place = meta.first + (word_ ## number & (meta.slots - 1)); \
    slots_of_stage.read(slot, place); \
    counts = 0; \
    if (slot[159:96] == mark && slot[63:0] > committed) { \
        counts = 1; \
    } \
    if (counts == 1 && slot[95:64] == hdr.harmonia.object) { \
        is_dirty = 1; \
    } \
    if (is_numbered == 1 && is_in == 0 && (counts == 0 || slot[95:64] == hdr.harmonia.object)) { \
        slots_of_stage.write(place, mark ++ hdr.harmonia.object ++ next); \
        is_in = 1; \
    }

control HarmoniaVerify(inout headers_t hdr, inout metadata_t meta) {
    apply {
        verify_checksum(
            hdr.ipv4.isValid(),
            IPV4_SUMMED,
            hdr.ipv4.checksum,
            HashAlgorithm.csum16);
        // A checksum that is computed anew below must have been right before, or damage would stay undetected.
        verify_checksum_with_payload(
            hdr.harmonia.isValid() && hdr.udp.checksum != 0,
            UDP_SUMMED,
            hdr.udp.checksum,
            HashAlgorithm.csum16);
    }
}

control HarmoniaIngress(
    inout headers_t hdr,
    inout metadata_t meta,
    inout standard_metadata_t standard_metadata) {

    @id(0x12000001)
    counter(11, CounterType.packets) verdicts;

    // Fields: partition, switch, sequence, committed
    @id(0x16000001)
    register<bit<192>>(256) partition_state;

    // Fields: partition, switch, object, sequence
    @id(0x16000002)
    register<bit<160>>(65536) stage_0;

    @id(0x16000003)
    register<bit<160>>(65536) stage_1;

    @id(0x16000004)
    register<bit<160>>(65536) stage_2;

    @id(0x11000001)
    @max_group_size(255)
    action_selector(HashAlgorithm.crc16, 32w65536, 32w16) replica_selector;

    @id(0x01000001)
    action drop() {
        mark_to_drop(standard_metadata);
    }

    @id(0x01000002)
    action set_partition(
        @id(1) bit<32> index,
        @id(2) bit<64> term,
        @id(3) bit<32> switch_id,
        @id(4) bit<1> active,
        @id(5) bit<32> primary,
        @id(6) bit<32> first,
        @id(7) bit<32> slots) {
        meta.has_partition = 1;
        meta.index = index;
        meta.term = term;
        meta.switch_id = switch_id;
        meta.active = active;
        meta.primary = primary;
        meta.first = first;
        meta.slots = slots;
    }

    // The switch id is 0 if the switch must not number writes.
    @id(0x02000001)
    table partitions {
        key = {
            hdr.harmonia.partition : exact @id(1) @name("partition");
        }
        actions = {
            set_partition;
            @defaultonly drop;
        }
        const default_action = drop();
        size = 256;
    }

    @id(0x01000003)
    action to_replica(@id(1) bit<32> replica) {
        meta.has_replica = 1;
        meta.replica = replica;
    }

    // Replicas that may answer reads of clean objects: one of an entry's actions is chosen by chance, in proportion to its
    // weight.
    @id(0x02000002)
    table replicas {
        key = {
            hdr.harmonia.partition : exact @id(1) @name("partition");
            meta.chance : selector;
        }
        actions = {
            to_replica;
            @defaultonly NoAction;
        }
        const default_action = NoAction();
        implementation = replica_selector;
        size = 256;
    }

    @id(0x01000004)
    action set_port(@id(1) bit<32> address, @id(2) bit<16> port) {
        meta.has_port = 1;
        hdr.ipv4.destination = address;
        hdr.udp.destination = port;
    }

    // Addresses of replicas.
    @id(0x02000003)
    table ports {
        key = {
            meta.replica : exact @id(1) @name("replica");
        }
        actions = {
            set_port;
            @defaultonly drop;
        }
        const default_action = drop();
        size = 4096;
    }

    @id(0x01000005)
    action to_next_hop(@id(1) bit<9> port, @id(2) bit<48> source, @id(3) bit<48> destination) {
        standard_metadata.egress_spec = port;
        hdr.ethernet.source = source;
        hdr.ethernet.destination = destination;
    }

    @id(0x02000004)
    table ipv4_lpm {
        key = {
            hdr.ipv4.destination : lpm @id(1) @name("destination");
        }
        actions = {
            to_next_hop;
            drop;
        }
        const default_action = drop();
        size = 1024;
    }

    @id(0x02000005)
    table ipv6_lpm {
        key = {
            hdr.ipv6.destination : lpm @id(1) @name("destination");
        }
        actions = {
            to_next_hop;
            drop;
        }
        const default_action = drop();
        size = 1024;
    }

    apply {
        if (standard_metadata.parser_error != error.NoError || standard_metadata.checksum_error == 1) {
            verdicts.count(MALFORMED);
            drop();
            exit;
        }
        if (hdr.harmonia.isValid()) {
            meta.verdict = ON;
            if (hdr.harmonia.operation == REPLY) {
                verdicts.count(REPLIES);
            } else if (hdr.harmonia.operation < READ || hdr.harmonia.operation > COMPLETION) {
                verdicts.count(MALFORMED);
                meta.verdict = NOWHERE;
            } else {
                partitions.apply();
                if (meta.has_partition == 0 || meta.term != hdr.harmonia.term) {
                    verdicts.count(NO_PARTITION);
                    meta.verdict = NOWHERE;
                } else {
                    // Partition and switch id for which the register counts.
                    bit<64> mark = hdr.harmonia.partition ++ meta.switch_id;
                    bit<192> held;
                    partition_state.read(held, meta.index);
                    if (held[191:128] != mark) {
                        held = mark ++ 128w0;
                    }
                    bit<64> given = held[127:64];
                    bit<64> committed = held[63:0];

                    // The dirty set: each stage is read once, and a first write changes at most one slot.
                    bit<1> is_numbered = 0;
                    if (hdr.harmonia.operation == WRITE_FIRST && meta.switch_id != 0) {
                        is_numbered = 1;
                    }
                    bit<64> next = given + 1;
                    bit<1> is_in = 0;
                    if (hdr.harmonia.object == NO_OBJECT) {
                        is_in = 1;
                    }
                    bit<1> is_dirty = 0;
                    bit<1> counts;
                    bit<32> place;
                    bit<160> slot;
                    // The place in each stage, as in `words` of ../src/dirty.rs: all of it linear, so that a target may make
                    // each place by a hash of its own. With a CRC of the object and the stage's number, objects that collide in
                    // one stage would collide in all.
                    bit<32> mixed;
                    hash(mixed, HashAlgorithm.crc32, 32w0, { hdr.harmonia.object }, 64w0x100000000);
                    bit<32> word_0 = mixed;
                    bit<32> word_1 = mixed[15:0] ++ mixed[31:16];
                    bit<16> both = (mixed[10:0] ++ mixed[15:11]) ^ (mixed[20:16] ++ mixed[31:21]);
                    bit<32> word_2 = mixed[15:0] ++ both;
                    STAGE(0, stage_0)
                    STAGE(1, stage_1)
                    STAGE(2, stage_2)

                    if (hdr.harmonia.operation == WRITE_FIRST || hdr.harmonia.operation == WRITE_REST) {
                        meta.verdict = TO_REPLICA;
                        meta.replica = meta.primary;
                        // A number of the sender's own would pass for a number that this switch gave.
                        hdr.harmonia.switch_id = 0;
                        hdr.harmonia.sequence = 0;
                        if (hdr.harmonia.operation == WRITE_REST) {
                            verdicts.count(WRITE_RESTS);
                        } else if (is_numbered == 1 && is_in == 0) {
                            // A write that is not in the dirty set must not be forwarded.
                            verdicts.count(FULL);
                            meta.verdict = NOWHERE;
                        } else {
                            verdicts.count(WRITES);
                            if (is_numbered == 1) {
                                given = next;
                                hdr.harmonia.switch_id = meta.switch_id;
                                hdr.harmonia.sequence = next;
                            }
                        }
                    } else if (hdr.harmonia.operation == COMPLETION) {
                        // A number beyond those given belongs to no write: if it counted, it would hide later writes that get
                        // such numbers.
                        if (hdr.harmonia.switch_id != meta.switch_id || hdr.harmonia.sequence == 0
                                || hdr.harmonia.sequence > given) {
                            verdicts.count(STALE);
                            meta.verdict = NOWHERE;
                        } else {
                            verdicts.count(COMPLETIONS);
                            if (hdr.harmonia.sequence > committed) {
                                committed = hdr.harmonia.sequence;
                            }
                        }
                    } else {
                        // A read that claims to be fast counts as an ordinary one: its stamp is not from this switch.
                        hdr.harmonia.operation = READ;
                        if (meta.active == 1 && committed != 0 && is_dirty == 0) {
                            random(meta.chance, 32w0, 32w0xffffffff);
                            replicas.apply();
                        }
                        meta.verdict = TO_REPLICA;
                        if (meta.has_replica == 1) {
                            verdicts.count(READS_SINGLE);
                            hdr.harmonia.operation = FAST_READ;
                            hdr.harmonia.switch_id = meta.switch_id;
                            hdr.harmonia.committed = committed;
                        } else {
                            verdicts.count(READS_PRIMARY);
                            meta.replica = meta.primary;
                        }
                    }
                    partition_state.write(meta.index, mark ++ given ++ committed);
                }
            }
            if (meta.verdict == TO_REPLICA) {
                ports.apply();
                if (meta.has_port == 0) {
                    verdicts.count(NO_PORT);
                    meta.verdict = NOWHERE;
                }
            }
            if (meta.verdict == NOWHERE) {
                drop();
                exit;
            }
        }
        if (hdr.ipv4.isValid() && hdr.ipv4.ttl > 1) {
            hdr.ipv4.ttl = hdr.ipv4.ttl - 1;
            ipv4_lpm.apply();
        } else if (hdr.ipv6.isValid() && hdr.ipv6.hop_limit > 1) {
            hdr.ipv6.hop_limit = hdr.ipv6.hop_limit - 1;
            ipv6_lpm.apply();
        } else {
            drop();
        }
    }
}

control HarmoniaEgress(
    inout headers_t hdr,
    inout metadata_t meta,
    inout standard_metadata_t standard_metadata) {
    apply { }
}

control HarmoniaCompute(inout headers_t hdr, inout metadata_t meta) {
    apply {
        update_checksum(
            hdr.ipv4.isValid(),
            IPV4_SUMMED,
            hdr.ipv4.checksum,
            HashAlgorithm.csum16);
        // Zero means that there is no checksum, and stays.
        update_checksum_with_payload(
            hdr.harmonia.isValid() && hdr.udp.checksum != 0,
            UDP_SUMMED,
            hdr.udp.checksum,
            HashAlgorithm.csum16);
    }
}

control HarmoniaDeparser(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr.ethernet);
        packet.emit(hdr.ipv4);
        packet.emit(hdr.ipv6);
        packet.emit(hdr.udp);
        packet.emit(hdr.harmonia);
    }
}

@pkginfo(name = "harmonia", version = "1")
V1Switch(
    HarmoniaParser(),
    HarmoniaVerify(),
    HarmoniaIngress(),
    HarmoniaEgress(),
    HarmoniaCompute(),
    HarmoniaDeparser()) main;
