"""What a client of P4Runtime finds here that was written by others (p4runtime-shell): a switch's address, the program's
description, and a file to take for what a compiler makes."""

import os
import sys
import traceback

import grpc
from google.rpc import code_pb2, status_pb2
from p4.config.v1 import p4info_pb2
from p4.v1 import p4runtime_pb2
from google.protobuf import text_format
import p4runtime_sh.shell as sh
from p4runtime_sh.p4runtime import P4RuntimeClient, P4RuntimeWriteException

address, p4info, device_config = sys.argv[1:]


def fail(*error):
    """The shell's threads would keep the process alive."""
    traceback.print_exception(*error)
    sys.stderr.flush()
    os._exit(1)


sys.excepthook = fail


def refused(code, call):
    """The call is refused with this code, as its one update's error."""
    try:
        call()
    except P4RuntimeWriteException as refusal:
        codes = [code_pb2.Code.Name(error.canonical_code) for _, error in refusal.errors]
        assert codes == [code], (code, str(refusal))
        return
    raise AssertionError(f"{code} was to come")


def partition(number, index, slots=8, term=3):
    entry = sh.TableEntry("partitions")(action="set_partition")
    entry.match["partition"] = str(number)
    arguments = dict(index=index, term=term, switch_id=1, active=1, primary=100, first=8 * index, slots=slots)
    for name, value in arguments.items():
        entry.action[name] = str(value)
    return entry


# No program yet: the shell asks for it all the same.
sh.setup(device_id=1, grpc_addr=address, election_id=(0, 10), verbose=False)
assert not sh.client.get_p4info().tables
assert sh.client.api_version() == "1.4.1"
sh.teardown()

config = sh.FwdPipeConfig(p4info, device_config)
sh.setup(device_id=1, grpc_addr=address, election_id=(1, 0), config=config, verbose=False)
with open(p4info) as text:
    assert sh.client.get_p4info() == text_format.Parse(text.read(), p4info_pb2.P4Info())

# Entries of a table, one by one.
partition(5, 0).insert()
partition(6, 1).insert()
refused("ALREADY_EXISTS", partition(5, 0).insert)
refused("NOT_FOUND", partition(7, 2).modify)
refused("INVALID_ARGUMENT", partition(7, 99).insert)
refused("INVALID_ARGUMENT", partition(7, 2, slots=7).insert)
refused("FAILED_PRECONDITION", partition(7, 1).insert)
partition(5, 0, term=2**63).modify()
read = list(partition(5, 0).read())
# What was sent with zeros in front comes back without.
assert len(read) == 1 and read[0].msg() != partition(5, 0, term=2**63).msg()
sh.global_options["canonical_bytestrings"] = True
assert read[0].msg() == partition(5, 0, term=2**63).msg(), read[0]
assert len(list(sh.TableEntry("partitions").read())) == 2
partition(6, 1).delete()
refused("NOT_FOUND", partition(6, 1).delete)
assert len(list(sh.TableEntry("partitions").read())) == 1

# A set of actions in one shot.
replicas = sh.TableEntry("replicas")
replicas.match["partition"] = "5"
replicas.oneshot = sh.Oneshot("replicas")
for replica, weight in [(100, 1), (101, 3)]:
    action = sh.Action("to_replica")
    action["replica"] = str(replica)
    replicas.oneshot.add(action, weight=weight)
replicas.insert()
read = list(sh.TableEntry("replicas").read())
assert len(read) == 1 and read[0].msg() == replicas.msg(), read[0]
replicas.oneshot.actions[0].weight = 0
refused("INVALID_ARGUMENT", replicas.modify)
replicas.oneshot.actions[0].weight = 254
refused("INVALID_ARGUMENT", replicas.modify)
member = sh.ActionProfileMember("replica_selector")(member_id=1, action="to_replica")
member.action["replica"] = "1"
refused("UNIMPLEMENTED", member.insert)

# Addresses, and prefixes.
port = sh.TableEntry("ports")(action="set_port")
port.match["replica"] = "100"
port.action["address"] = "127.0.0.1"
port.action["port"] = "7100"
port.insert()
for table, prefix in [("ipv4_lpm", "10.1.0.0/16"), ("ipv6_lpm", "fd00::/8")]:
    route = sh.TableEntry(table)(action="to_next_hop")
    route.match["destination"] = prefix
    route.action["port"] = "1"
    route.action["source"] = "02:00:00:00:00:01"
    route.action["destination"] = "02:00:00:00:00:02"
    route.insert()
    read = list(sh.TableEntry(table).read())
    assert len(read) == 1 and read[0].msg() == route.msg(), read[0]

# Default entries are constant.
default = sh.TableEntry("ipv4_lpm")(action="drop", is_default=True)
refused("PERMISSION_DENIED", default.modify)
read = list(sh.TableEntry("ipv4_lpm")(is_default=True).read())
assert len(read) == 1 and read[0].action.msg().action_id == sh.Action("drop").msg().action_id

# Counters.
counters = list(sh.CounterEntry("verdicts").read())
assert [counter.index for counter in counters] == list(range(11))
counter = sh.CounterEntry("verdicts")(index=7)
counter.packet_count = 12
counter.modify()
assert [counter.packet_count for counter in sh.CounterEntry("verdicts")(index=7).read()] == [12]
beyond = sh.CounterEntry("verdicts")(index=11)
beyond.packet_count = 1
refused("OUT_OF_RANGE", beyond.modify)

# What the shell has no words for.
asked = p4runtime_pb2.ReadRequest(device_id=1)
asked.entities.add().register_entry.register_id = 0x16000001
cells = [entity.register_entry for answer in sh.client.stub.Read(asked) for entity in answer.entities]
assert [cell.index.index for cell in cells] == list(range(8)) and cells[0].data.bitstring == b"\0"
written = p4runtime_pb2.WriteRequest(device_id=1)
written.election_id.high = 1
for table_id, kind in [(0x02000003, p4runtime_pb2.Update.DELETE), (0x02000009, p4runtime_pb2.Update.INSERT)]:
    update = written.updates.add(type=kind)
    update.entity.table_entry.CopyFrom(port.msg())
    update.entity.table_entry.table_id = table_id
try:
    sh.client.stub.Write(written)
    raise AssertionError("one of them fails")
except grpc.RpcError as refusal:
    assert refusal.code() == grpc.StatusCode.UNKNOWN
    details = dict(refusal.trailing_metadata())["grpc-status-details-bin"]
    errors = []
    for detail in status_pb2.Status.FromString(details).details:
        error = p4runtime_pb2.Error()
        assert detail.Unpack(error)
        errors.append(error.canonical_code)
    assert errors == [code_pb2.OK, code_pb2.INVALID_ARGUMENT], errors

# Another controller: it hears who is the primary, and may not write.
other = P4RuntimeClient(1, address, (0, 5))
try:
    other.write_update(p4runtime_pb2.Update())
    raise AssertionError("only the primary may write")
except grpc.RpcError as refusal:
    assert refusal.code() == grpc.StatusCode.PERMISSION_DENIED
other.election_id = (2, 0)
other.handshake()
notice = sh.client.get_stream_packet("arbitration", timeout=5)
assert notice.arbitration.status.code == code_pb2.ALREADY_EXISTS and notice.arbitration.election_id.high == 2
try:
    port.insert()
    raise AssertionError("it is not the primary any more")
except grpc.RpcError as refusal:
    assert refusal.code() == grpc.StatusCode.PERMISSION_DENIED
other.tear_down()
notice = sh.client.get_stream_packet("arbitration", timeout=5)
assert notice.arbitration.status.code == code_pb2.NOT_FOUND
sh.teardown()
print("all is well")
