#!/usr/bin/env bash
# A real Slurm on one machine, for tests: several nodes with GPUs that are device files.
# slurm.sh start DIR [nodes=4] [gpus<=4 per node =2] [baseport=16817] | stop DIR | controller-down DIR | controller-up DIR
# Needs slurmctld, slurmd and slurm-client (Debian, Ubuntu); no munge, no root, no systemd, no cgroups.
# With SLURM_TEST_ACCOUNTS=1 also a database of accounts, which needs slurmdbd and mariadb-server, and two more ports.
set -euo pipefail
cmd=$1 R=$(realpath -m "$2") N=${3:-4} G=${4:-2} P=${5:-16817}
export SLURM_CONF=$R/slurm.conf
end() { # the daemons with these pid files, all at once
  local p pids=(); for f in "$@"; do [ ! -e "$f" ] || pids+=("$(cat "$f")"); done
  for p in "${pids[@]}"; do kill "$p" 2>/dev/null || true; done
  for p in "${pids[@]}"; do for _ in $(seq 100); do kill -0 "$p" 2>/dev/null || break; sleep .1; done; kill -9 "$p" 2>/dev/null || true; done
}
case $cmd in
controller-down) end $R/run/slurmctld.pid; exit 0 ;;
controller-up) exec slurmctld -f $SLURM_CONF ;; # with its memory: no -c
stop)
  ids=$(squeue -h -o %A 2>/dev/null || true); [ -z "$ids" ] || { scancel $ids || true; sleep 1; }
  end $R/run/*.pid; exit 0 ;;
esac
mkdir -p $R/{ctld,spool,log,run}; U=$(id -un) H=$(hostname -s); dev=(null zero full urandom)
accounts=AccountingStorageType=accounting_storage/none
[ -z "${SLURM_TEST_ACCOUNTS:-}" ] || accounts="AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=127.0.0.1
AccountingStoragePort=$((P+N+1))"
cat > $R/slurm.conf <<C
ClusterName=fake
SlurmctldHost=$H(127.0.0.1)
SlurmUser=$U
SlurmdUser=$U
AuthType=auth/none
CredType=cred/none
CommunicationParameters=NoCtldInAddrAny,NoInAddrAny
SlurmctldPort=$P
StateSaveLocation=$R/ctld
SlurmdSpoolDir=$R/spool/%n
SlurmctldPidFile=$R/run/slurmctld.pid
SlurmdPidFile=$R/run/slurmd.%n.pid
SlurmctldLogFile=$R/log/slurmctld.log
SlurmdLogFile=$R/log/slurmd.%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=${SLURM_TEST_TASKS:-task/none}
SwitchType=switch/none
MpiDefault=none
JobAcctGatherType=jobacct_gather/none
$accounts
JobCompType=jobcomp/filetxt
JobCompLoc=$R/log/jobcomp.txt
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU_Memory
SchedulerParameters=sched_interval=2,bf_interval=2,batch_sched_delay=0,sched_min_interval=0
SlurmdParameters=config_overrides
GresTypes=gpu
ReturnToService=2
KillWait=3
SlurmdTimeout=30
EnforcePartLimits=ALL
MinJobAge=300
DefMemPerCPU=256
NodeName=gpu[0-$((N-1))] NodeHostname=$H NodeAddr=127.0.0.1 Port=[$((P+1))-$((P+N))] CPUs=$((G*4)) RealMemory=65536 Gres=gpu:l40s:$G State=UNKNOWN
PartitionName=gpu Nodes=ALL Default=YES MaxTime=1-00:00:00 DefaultTime=10:00 State=UP
PartitionName=cpu Nodes=ALL MaxTime=1-00:00:00 State=UP
PartitionName=paid Nodes=ALL AllowAccounts=abc123 State=UP
C
# the kernel enforces memory with SLURM_TEST_TASKS=task/cgroup, which needs root
[ -z "${SLURM_TEST_TASKS:-}" ] || printf 'CgroupPlugin=cgroup/v1\nConstrainRAMSpace=yes\n' > $R/cgroup.conf
for ((i=0;i<G;i++)); do echo "NodeName=gpu[0-$((N-1))] Name=gpu Type=l40s File=/dev/${dev[i]}"; done > $R/gres.conf
if [ -n "${SLURM_TEST_ACCOUNTS:-}" ]; then
  mariadb-install-db --no-defaults --user=$U --datadir=$R/db --auth-root-authentication-method=normal --skip-test-db > $R/log/mariadb.log
  mariadbd --no-defaults --user=$U --datadir=$R/db --socket=$R/db.sock --bind-address=127.0.0.1 --port=$((P+N+2)) \
    --pid-file=$R/run/mariadbd.pid --innodb-flush-log-at-trx-commit=0 >> $R/log/mariadb.log 2>&1 &
  for _ in $(seq 600); do mariadb --no-defaults -u root -S $R/db.sock -e 'select 1' > /dev/null 2>&1 && break; sleep .1; done
  mariadb --no-defaults -u root -S $R/db.sock -e "create database slurm; grant all on slurm.* to slurm@'127.0.0.1' identified by 'slurm'"
  (umask 077; cat > $R/slurmdbd.conf <<C
AuthType=auth/none
DbdHost=localhost
DbdAddr=127.0.0.1
DbdPort=$((P+N+1))
SlurmUser=$U
PidFile=$R/run/slurmdbd.pid
LogFile=$R/log/slurmdbd.log
StorageType=accounting_storage/mysql
StorageHost=127.0.0.1
StoragePort=$((P+N+2))
StorageUser=slurm
StoragePass=slurm
StorageLoc=slurm
C
  )
  slurmdbd
  for _ in $(seq 600); do sacctmgr -n show cluster > /dev/null 2>&1 && break; sleep .1; done
  sacctmgr -i add cluster fake > /dev/null
fi
slurmctld -c -f $SLURM_CONF
for ((i=0;i<N;i++)); do mkdir -p $R/spool/gpu$i; slurmd -N gpu$i -f $SLURM_CONF; done
for _ in $(seq 100); do [ "$(sinfo -h -t idle -o %D 2>/dev/null)" = "$N" ] && { echo "export SLURM_CONF=$SLURM_CONF"; exit 0; }; sleep .1; done
echo "cluster did not come up; see $R/log" >&2; exit 1
